// Quickstart is the program of the README: four ranks, eight experts, a token on each rank.
package main

import (
	"context"
	"fmt"
	"log"

	"github.com/weftgo/weft"
	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/ep"
)

func main() {
	ctx := context.Background()
	world, err := weft.Open(ctx, weft.Config{Ranks: 4})
	if err != nil {
		log.Fatal(err)
	}
	sums := make([]float32, 4)
	err = world.Run(ctx, func(ctx context.Context, c *comm.Comm) error { // once for each rank, in a goroutine of its own
		ex, err := weft.NewExchanger(ctx, c, "alltoall", ep.Config{NumExperts: 8, TopK: 2, Hidden: 1, MaxTokensPerRank: 1, Layout: ep.Expanded})
		if err != nil {
			return err
		}
		x := comm.Of([]float32{float32(c.Rank())}, 1)  // [tokens, hidden]; any number of tokens, also none
		ids := comm.Of([]int32{int32(c.Rank()), 7}, 2) // [tokens, topK]: the experts that the router chose
		weights := comm.Of([]float32{0.25, 0.75}, 2)   // [tokens, topK]
		r, err := ex.Dispatch(comm.Stream{}, x, ep.Routing{IDs: ids, Weights: weights})
		if err != nil {
			return err
		}
		for local, rows := range r.Experts(ctx) { // the experts of this rank, and which rows of r.X chose them
			expert := ex.Config().Placement.LogicalOf(c.Rank(), local)
			for i := rows[0]; i < rows[1]; i++ {
				comm.Row[float32](r.Y, i)[0] = comm.Row[float32](r.X, i)[0] + float32(100*expert) // your expert
			}
		}
		return ex.Combine(comm.Stream{}, comm.Of(sums[c.Rank():c.Rank()+1], 1), r.Y, r) // the weighted sums come back
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(sums)
}
