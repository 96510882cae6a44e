package twolevel_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/weftgo/weft/alltoall/twolevel"
	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/comm/local"
	"github.com/weftgo/weft/comm/nodes"
	"github.com/weftgo/weft/ep"
)

// Two nodes of two ranks and four experts, one a rank. Rank 0's token wants experts 2 and 3, which are both on the other node: it
// crosses once.
func Example() {
	ctx := context.Background()
	two := func() *comm.World {
		w, err := local.Open(local.Config{Ranks: 2})
		if err != nil {
			panic(err)
		}
		return w
	}
	left, right := two().Local(), two().Local() // columns: ranks 0 and 2, ranks 1 and 3
	w, err := nodes.Open(ctx, nodes.Node{Inside: two(), Between: []*comm.Comm{left[0], right[0]}},
		nodes.Node{Inside: two(), Between: []*comm.Comm{left[1], right[1]}})
	if err != nil {
		panic(err)
	}
	err = w.Run(ctx, func(ctx context.Context, c *comm.Comm) error {
		inside, between, _ := nodes.Levels(c)
		x, err := twolevel.New(ctx, inside, between, ep.Config{NumExperts: 4, TopK: 2, Hidden: 1, MaxTokensPerRank: 1, Layout: ep.Expanded})
		if err != nil {
			return err
		}
		token := []float32{10}
		r, err := x.Dispatch(comm.Stream{}, comm.Of(token, 1), ep.Routing{IDs: comm.Of([]int32{2, 3}, 2), Weights: comm.Of([]float32{0.5, 0.25}, 2)})
		if err != nil {
			return err
		}
		for e, slots := range r.Experts(ctx) {
			factor := float32(x.Config().Placement.LogicalOf(c.Rank(), e) + 1)
			for s := slots[0]; s < slots[1]; s++ {
				comm.Row[float32](r.Y, s)[0] = factor * comm.Row[float32](r.X, s)[0]
			}
		}
		err = x.Combine(comm.Stream{}, comm.Of(token, 1), r.Y, r)
		if s := x.Stats(); c.Rank() == 0 {
			fmt.Printf("out %v: %d copies, %d across the network\n", token, s.NumCopies, s.NumCrossNodeCopies)
		}
		return errors.Join(err, x.Close(ctx))
	})
	if err = errors.Join(err, w.Close(ctx)); err != nil {
		panic(err)
	}
	// Output:
	// out [25]: 2 copies, 1 across the network
}
