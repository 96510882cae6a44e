package nodes_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/comm/local"
	"github.com/weftgo/weft/comm/nodes"
)

// Two nodes of two ranks, all in this process. With GPUs the worlds inside are p2p.Open's and the columns ncclworld.Open's.
func Example() {
	ctx := context.Background()
	must := func(w *comm.World, err error) *comm.World {
		if err != nil {
			panic(err)
		}
		return w
	}
	two := local.Config{Ranks: 2}
	node0, node1 := must(local.Open(two)), must(local.Open(two))
	left, right := must(local.Open(two)).Local(), must(local.Open(two)).Local() // columns: ranks 0 and 2, ranks 1 and 3
	w := must(nodes.Open(ctx, nodes.Node{Inside: node0, Between: []*comm.Comm{left[0], right[0]}},
		nodes.Node{Inside: node1, Between: []*comm.Comm{left[1], right[1]}}))
	err := w.Run(ctx, func(ctx context.Context, c *comm.Comm) error {
		x := comm.Of([]float32{1, float32(c.Rank())}, 2)
		err := c.AllReduce(comm.Stream{}, x, x, comm.Sum)
		if c.Rank() == 3 {
			fmt.Println(c.Size(), "ranks:", comm.Row[float32](x, 0))
		}
		return err
	})
	if err = errors.Join(err, w.Close(ctx)); err != nil {
		panic(err)
	}
	// Output:
	// 4 ranks: [4 6]
}
