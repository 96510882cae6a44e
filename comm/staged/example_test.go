package staged_test

import (
	"context"
	"fmt"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/comm/local"
	"github.com/weftgo/weft/comm/p2p"
	"github.com/weftgo/weft/comm/staged"
)

// open returns two ranks on the host: with their collectives on GPU 0 if there is one, else on the CPU altogether.
func open(ctx context.Context) (*comm.World, error) {
	gpu := comm.Device{Kind: comm.CUDA, Index: 0}
	below, err := p2p.Open(ctx, p2p.Config{Devices: []comm.Device{gpu, gpu}})
	if err != nil {
		return local.Open(local.Config{Ranks: 2})
	}
	return staged.Open(below, staged.Config{})
}

// A program over Go memory does not see where its collectives run.
func ExampleOpen() {
	ctx := context.Background()
	world, err := open(ctx)
	if err != nil {
		panic(err)
	}
	defer world.Close(ctx)
	err = world.Run(ctx, func(ctx context.Context, c *comm.Comm) error {
		x := []float32{1, 2, float32(c.Rank())}
		b := comm.Of(x, 3)
		if err := c.AllReduce(comm.Stream{}, b, b, comm.Sum); err != nil {
			return err
		}
		if c.Rank() == 0 {
			fmt.Println(c.Device(), x)
		}
		return nil
	})
	if err != nil {
		panic(err)
	}
	// Output: cpu:0 [2 4 1]
}
