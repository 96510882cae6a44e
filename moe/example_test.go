package moe_test

import (
	"context"
	"fmt"

	"github.com/weftgo/weft/alltoall"
	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/comm/local"
	"github.com/weftgo/weft/moe"
)

// Two data-parallel ranks share four experts. Expert e squares value e of a row (its gate is wide open), and the router sends a
// token to the experts of its two largest values.
func ExampleNew() {
	const hidden = 4
	cfg := moe.Config{
		Hidden: hidden, NumExperts: 4, TopK: 2, Intermediate: 1, Renormalize: true, MaxTokens: 8,
		Parallel: moe.Parallel{TP: 1, DP: 2, EP: true},
	}
	row := func(i int, v float32) []float32 { r := make([]float32, hidden); r[i] = v; return r }
	world, err := local.Open(local.Config{Ranks: cfg.Parallel.Size()})
	if err != nil {
		fmt.Println(err)
		return
	}
	results := make([][]float32, world.Size())
	err = world.Run(context.Background(), func(ctx context.Context, c *comm.Comm) error {
		exchanger, err := alltoall.New(ctx, c, cfg.Exchange())
		if err != nil {
			return err
		}
		defer exchanger.Close(ctx)
		weights := moe.Weights{
			Router: []float32{1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1},
			Expert: func(local int) (moe.Expert, error) { // called for this rank's experts only
				e := cfg.LocalExpert(c.Rank(), local)
				return moe.Expert{Gate: row(e, 100), Up: row(e, 0.02), Down: row(e, 1)}, nil
			},
		}
		layer, err := moe.New(ctx, c, cfg, weights, exchanger)
		if err != nil {
			return err
		}
		if c.Rank() == 0 {
			fmt.Println(layer)
		}
		x := [][]float32{{5, 1, 5, 0, 0, 0, 3, 3}, {2, 0, 0, 2}}[c.Rank()] // two tokens on rank 0, one on rank 1
		out := make([]float32, len(x))
		results[c.Rank()] = out
		return layer.Forward(comm.Stream{}, comm.Of(out, hidden), comm.Of(x, hidden))
	})
	fmt.Printf("%.2f %v\n", results, err)
	// Output:
	// moe dp2+ep2: exchanger alltoall (dp > 1 with ep: ranks have rows and experts of their own); experts 2 of 4, width 1 of 1, f32 grouped products to partial rows; reduction combine of the exchanger; shared experts none
	// [[25.00 0.00 25.00 0.00 0.00 0.00 9.00 9.00] [4.00 0.00 0.00 4.00]] <nil>
}
