package alltoall_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/weftgo/weft/alltoall"
	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/comm/local"
	"github.com/weftgo/weft/ep"
	"github.com/weftgo/weft/routing"
)

// Rank 1 of three dies while the others dispatch. They get errors that name it, open a world of their own and go on: experts 2
// and 3, which it had, are dropped and counted. Every token asks for experts 0 and 2, or 2 and 4; expert e multiplies by e+1.
func Example_withoutARank() {
	ctx := context.Background()
	cfg := ep.Config{NumExperts: 6, TopK: 2, Hidden: 1, MaxTokensPerRank: 2, Placement: routing.Placement{NumExperts: 6, Size: 3}}
	world, err := local.Open(local.Config{Ranks: 3})
	if err != nil {
		panic(err)
	}
	err = world.Run(ctx, func(ctx context.Context, c *comm.Comm) error {
		if c.Rank() == 1 {
			return errors.New("its GPU fell off the bus")
		}
		return serve(ctx, c, cfg, nil)
	})
	fmt.Println(err)

	dead := comm.Blamed(err)
	if cfg.Placement, err = cfg.Placement.Without(dead); err != nil {
		panic(err)
	}
	next, err := world.Without(ctx, dead)
	if err != nil {
		panic(err)
	}
	defer next.Close(ctx)
	fmt.Println(next.Size(), "ranks are left, experts", cfg.Placement.Missing(), "are missing")
	lines := make([]string, next.Size())
	if err = next.Run(ctx, func(ctx context.Context, c *comm.Comm) error { return serve(ctx, c, cfg, lines) }); err != nil {
		panic(err)
	}
	fmt.Println(lines[0])
	fmt.Println(lines[1])
	// Output:
	// run: rank 1: internal: its GPU fell off the bus
	// 2 ranks are left, experts [2 3] are missing
	// rank 0: out [5 12.5], 2 ids dropped
	// rank 1: out [5 12.5], 2 ids dropped
}

// serve is what a rank does as long as its world lives: here, one exchange of two tokens.
func serve(ctx context.Context, c *comm.Comm, cfg ep.Config, lines []string) error {
	ex, err := alltoall.New(ctx, c, cfg)
	if err != nil {
		return err
	}
	defer ex.Close(ctx)
	x := []float32{10, 10}
	ids, weights := []int32{0, 2, 2, 4}, []float32{0.5, 0.25, 0.75, 0.25}
	r, err := ex.Dispatch(comm.Stream{}, comm.Of(x, 1), ep.Routing{IDs: comm.Of(ids, 2), Weights: comm.Of(weights, 2)})
	if err != nil {
		return err
	}
	for e, slots := range r.Experts(ctx) {
		factor := float32(ex.Config().Placement.LogicalOf(c.Rank(), e) + 1)
		for s := slots[0]; s < slots[1]; s++ {
			row := comm.Row[int32](r.Index.Row, 0)[s]
			comm.Row[float32](r.Y, s)[0] = factor * comm.Row[float32](r.X, int(row))[0]
		}
	}
	dropped := comm.Row[int32](r.Dropped, 0)[0]
	if err := ex.Combine(comm.Stream{}, comm.Of(x, 1), r.Y, r); err != nil {
		return err
	}
	lines[c.Rank()] = fmt.Sprintf("rank %d: out %v, %d ids dropped", c.Rank(), x, dropped)
	return nil
}
