package moe_test

import (
	"context"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/alltoall"
	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/comm/local"
	"github.com/weftgo/weft/dtype"
	"github.com/weftgo/weft/ep"
	"github.com/weftgo/weft/internal/race"
	"github.com/weftgo/weft/moe"
)

// TestCounters: the collectives of one Forward, exactly, with and without tokens.
func TestCounters(t *testing.T) {
	m := randomModel(odd, 31)
	calls := func(kinds ...comm.OpKind) (n [comm.NumOpKinds]int64) {
		for _, k := range kinds {
			n[k]++
		}
		return n
	}
	for _, c := range []struct {
		name string
		p    moe.Parallel
		s    strategy
		want [comm.NumOpKinds]int64
	}{
		{"one rank", moe.Parallel{TP: 1, DP: 1}, nil, calls(comm.AllReduce)},
		{"tp", moe.Parallel{TP: 3, DP: 1}, nil, calls(comm.AllReduce)},
		{"tp+ep", moe.Parallel{TP: 3, DP: 1, EP: true}, nil, calls(comm.AllReduce)},
		{"dp", moe.Parallel{TP: 1, DP: 3}, nil, calls(comm.AllGatherV, comm.ReduceScatterV)},
		{"agrs", dpEP(3), withAgRs, calls(comm.AllGatherV, comm.ReduceScatterV)},
		{"alltoall", dpEP(3), withAllToAll, calls(comm.AllGather, comm.AllToAllV, comm.AllToAllV)},
	} {
		for _, numTokens := range []int{0, 1, 11} {
			x := randomRows(numTokens*m.cfg.Hidden, 1)
			m.forward(t, c.p, c.s, x, split(c.p, numTokens, 1), func(rank *comm.Comm, _ *moe.Layer, before comm.Stats) {
				var got [comm.NumOpKinds]int64
				for k, s := range rank.Stats().Sub(before) {
					got[k] = s.Calls
				}
				require.Equal(t, c.want, got, "%s, %d tokens", c.name, numTokens)
			})
		}
	}
}

// TestLoad: the ranks' loads add up to the choices of all tokens.
func TestLoad(t *testing.T) {
	m := randomModel(odd, 37)
	x := randomRows(23*m.cfg.Hidden, 41)
	want := make([]int64, m.cfg.NumExperts)
	m.forward(t, moe.Parallel{TP: 1, DP: 1}, nil, x, [][2]int{{0, 23}}, func(_ *comm.Comm, l *moe.Layer, _ comm.Stats) {
		ids, _ := l.Routing()
		for _, e := range ids {
			want[e]++
		}
		require.Equal(t, want, l.Load())
	})
	for _, c := range every(3) {
		loads := make([][]int64, 3)
		m.forward(t, c.p, c.s, x, split(c.p, 23, 1), func(rank *comm.Comm, l *moe.Layer, _ comm.Stats) {
			loads[rank.Rank()] = l.Load()
		})
		for e := range want {
			if c.p.EP {
				require.Equal(t, want[e], loads[0][e]+loads[1][e]+loads[2][e])
			} else {
				require.Equal(t, want[e], loads[1][e])
			}
		}
	}
}

// TestBigSmallZeroBig: nothing of a larger batch is left in a later one.
func TestBigSmallZeroBig(t *testing.T) {
	m := randomModel(odd, 43)
	h := m.cfg.Hidden
	x := randomRows(64*h, 47)
	for _, c := range every(3) {
		cfg := m.cfg
		cfg.Parallel, cfg.MaxTokens = c.p, 64
		w, err := local.Open(local.Config{Ranks: 3})
		require.NoError(t, err)
		require.NoError(t, w.Run(context.Background(), func(ctx context.Context, r *comm.Comm) error {
			l, done, err := m.layer(ctx, r, cfg, c.s)
			if err != nil {
				return err
			}
			defer done()
			var first []float32
			for _, n := range []int{64, 3, 0, 64} {
				if c.p.DP > 1 && r.Rank() == 1 && n == 3 {
					n = 0
				}
				out := poisoned(n * h)
				if err := l.Forward(comm.Stream{}, comm.Of(out, h), comm.Of(x[:n*h], h)); err != nil {
					return err
				}
				if first == nil {
					first = out
				}
				requireSame(t, first[:n*h], out, c.p.String())
			}
			return nil
		}))
		require.NoError(t, w.Close(context.Background()))
	}
}

// TestAllocations: a layer that has seen its largest batch allocates next to nothing (pools may be emptied meanwhile).
func TestAllocations(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector makes pools forget")
	}
	m := randomModel(odd, 73)
	h := m.cfg.Hidden
	x, out := randomRows(50*h, 79), make([]float32, 50*h)
	one(t, m, 50, func(l *moe.Layer) {
		forward := func() { require.NoError(t, l.Forward(comm.Stream{}, comm.Of(out, h), comm.Of(x, h))) }
		forward()
		require.LessOrEqual(t, testing.AllocsPerRun(50, forward), 2.0)
	})
}

// TestFloat8Wire: rows that travel as fp8 are scaled back before the experts.
func TestFloat8Wire(t *testing.T) {
	cfg := odd
	cfg.Hidden = 136 // two scales a row, the second of 8 values
	m := randomModel(cfg, 83)
	x := randomRows(9*cfg.Hidden, 89)
	for i := range x { // values that e4m3 holds, and a factor that only the scales carry
		x[i] = float32(int(x[i]*2)) * 0.125
	}
	narrow := func(ctx context.Context, c *comm.Comm, cfg ep.Config) (ep.Exchanger, error) {
		cfg.Wire = dtype.F8E4M3
		return alltoall.New(ctx, c, cfg)
	}
	at := split(dpEP(3), 9, 1)
	want := m.forward(t, dpEP(3), withAllToAll, x, at, nil)
	got := m.forward(t, dpEP(3), narrow, x, at, nil)
	scale := 0.0
	for _, v := range want {
		scale = max(scale, math.Abs(float64(v)))
	}
	requireNear(t, want, got, 0.1*scale, "fp8 wire")
}
