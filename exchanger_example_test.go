package weft_test

import (
	"context"
	"fmt"

	"github.com/weftgo/weft"
	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/ep"
)

// Four ranks with two experts each; every rank has one token, which goes to expert 0 and to expert 7. Expert e adds e.
func ExampleNewExchanger() {
	ctx := context.Background()
	world, err := weft.Open(ctx, weft.Config{Ranks: 4})
	if err != nil {
		panic(err)
	}
	defer world.Close(ctx)
	sums := make([]float32, 4)
	err = world.Run(ctx, func(ctx context.Context, c *comm.Comm) error {
		ex, err := weft.NewExchanger(ctx, c, "alltoall", ep.Config{NumExperts: 8, TopK: 2, Hidden: 1, MaxTokensPerRank: 1, Layout: ep.Expanded})
		if err != nil {
			return err
		}
		defer ex.Close(ctx)
		x := comm.Of([]float32{float32(c.Rank())}, 1)
		r, err := ex.Dispatch(comm.Stream{}, x, ep.Routing{IDs: comm.Of([]int32{0, 7}, 2), Weights: comm.Of([]float32{10, 1}, 2)})
		if err != nil {
			return err
		}
		for e, slots := range r.Experts(ctx) {
			for s := slots[0]; s < slots[1]; s++ {
				comm.Row[float32](r.Y, s)[0] = comm.Row[float32](r.X, s)[0] + float32(2*c.Rank()+e)
			}
		}
		return ex.Combine(comm.Stream{}, comm.Of(sums[c.Rank():c.Rank()+1], 1), r.Y, r)
	})
	if err != nil {
		panic(err)
	}
	fmt.Println(sums) // 10 (x + 0) + 1 (x + 7)
	// Output: [7 18 29 40]
}
