package ncclworld_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/dtype"
	"github.com/weftgo/weft/nccl/ncclworld"
)

// One process with two GPUs, a rank on each, adds up a row.
func Example() {
	ctx := context.Background()
	w, err := ncclworld.Open(ctx, ncclworld.Config{Devices: []comm.Device{{Kind: comm.CUDA, Index: 0}, {Kind: comm.CUDA, Index: 1}}})
	if err != nil {
		fmt.Println("no two GPUs, or no NCCL here:", err)
		return
	}
	err = w.Run(ctx, func(ctx context.Context, c *comm.Comm) error {
		x, err := comm.Alloc(c, dtype.F32, 1, 3)
		if err != nil {
			return err
		}
		host := comm.Of([]float32{1, 2, 3}, 3)
		err = errors.Join(comm.Copy(c, comm.Stream{}, x, host), c.AllReduce(comm.Stream{}, x, x, comm.Sum),
			comm.Copy(c, comm.Stream{}, host, x), c.Wait(ctx, comm.Stream{}))
		if c.Rank() == 0 {
			fmt.Println(comm.Row[float32](host, 0)) // [2 4 6]
		}
		return err
	})
	if err = errors.Join(err, w.Close(ctx)); err != nil {
		panic(err)
	}
}
