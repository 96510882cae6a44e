package eptest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/ep"
	"github.com/weftgo/weft/routing"
)

// testWithout lets a rank die while the others are inside a Dispatch, and then another one: each time the survivors get errors,
// open a world of their own and go on, with the experts that they had. Experts with a replica are served there; ids of the others are
// dropped and counted.
func testWithout(t *testing.T, on *rig) {
	if on.traits.Nodes > 0 {
		t.Skip("worlds of two levels are not opened anew without a rank")
	}
	const ranks = 5
	for name, p := range map[string]routing.Placement{
		"plain":       {NumExperts: 11, Size: ranks},
		"round robin": {NumExperts: 11, Size: ranks, RoundRobin: true},
		"replicas":    {NumExperts: 6, Size: ranks, Physical: []int32{0, 1, 2, 3, 4, 5, 0, 3, 2, 2}},
		"few":         {NumExperts: 2, Size: ranks},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := ep.Config{NumExperts: p.NumExperts, TopK: 3, Hidden: 20, MaxTokensPerRank: 7, Placement: p}
			w := on.open(t, ranks, 20*time.Second)
			open := []*comm.World{w}
			t.Cleanup(func() {
				for _, w := range slices.Backward(open) {
					require.NoError(t, w.Close(context.Background()))
				}
			})
			for _, dead := range []int{1, 0} {
				w = loseOne(t, on, w, cfg, dead)
				open = append(open, w)
				left, err := cfg.Placement.Without(dead)
				require.NoError(t, err)
				cfg.Placement = left
			}
		})
	}
}

// loseOne runs a few steps, lets a rank die, and returns the world of the others.
func loseOne(t *testing.T, on *rig, w *comm.World, cfg ep.Config, dead int) *comm.World {
	size := w.Size()
	heard, late := make([]error, size), make([]ep.Exchanger, size)
	steps := usual(cfg, size)
	err := w.Run(context.Background(), func(ctx context.Context, c *comm.Comm) (err error) {
		x, err := on.create(ctx, c, cfg)
		if err != nil {
			return err
		}
		if c.Rank() == size-1 {
			late[c.Rank()] = x // closed when its world is gone
		} else {
			defer x.Close(ctx)
		}
		defer func() { heard[c.Rank()] = err }() // a slow rank may hear of it before it gets to the last Dispatch
		for i, s := range steps {
			if err := run(ctx, c, x, s, options{numBias: i % 3}); err != nil {
				return err
			}
		}
		if err := errors.Join(sameDropped(c, x, steps), c.Barrier(comm.Stream{}), c.Wait(ctx, comm.Stream{})); err != nil {
			return err
		}
		if c.Rank() == dead {
			time.Sleep(20 * time.Millisecond) // the others are in Dispatch
			panic("out of memory")
		}
		_, err = begin(ctx, c, x, steps[0])
		return err
	})
	require.ErrorContains(t, err, "out of memory")
	require.Equal(t, dead, comm.Blamed(err))
	for rank, err := range heard {
		if rank != dead {
			require.Error(t, err)
			require.Equal(t, dead, comm.Blamed(err), "%v", err)
		}
	}
	next, err := w.Without(context.Background(), comm.Blamed(err))
	if errors.Is(err, comm.Unavailable) {
		t.Skip(err)
	}
	require.NoError(t, err)
	_ = late[size-1].Close(context.Background()) // it may say that its memory went with the world
	left := cfg
	if left.Placement, err = cfg.Placement.Without(dead); err != nil {
		t.Fatal(err)
	}
	steps = usual(left, size-1)
	require.NoError(t, next.Run(context.Background(), func(ctx context.Context, c *comm.Comm) error {
		x, err := on.create(ctx, c, left)
		if err != nil {
			return err
		}
		defer x.Close(ctx)
		for i, s := range steps {
			if err := run(ctx, c, x, s, options{numBias: i % 3}); err != nil {
				return err
			}
		}
		return sameDropped(c, x, steps)
	}))
	return next
}

// sameDropped compares the counter of ids that went nowhere with what the steps had of them.
func sameDropped(c *comm.Comm, x ep.Exchanger, steps []Step) error {
	m, ok := x.(ep.Meter)
	if !ok {
		return nil
	}
	var want int64
	for _, s := range steps {
		want += droppedOf(x.Config(), s, c.Rank())
	}
	if got := m.Stats().DroppedIDs; got != want {
		return fmt.Errorf("rank %d: %d ids dropped, want %d", c.Rank(), got, want)
	}
	return nil
}
