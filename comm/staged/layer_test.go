package staged

import (
	"context"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/agrs"
	"github.com/weftgo/weft/alltoall"
	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/comm/commtest"
	"github.com/weftgo/weft/comm/local"
	"github.com/weftgo/weft/ep"
	"github.com/weftgo/weft/moe"
)

// A MoE layer with either exchanger, or none, gives the bits of the CPU driver when its collectives run on a device, and its
// counters: what was written for the CPU runs unchanged.
func TestLayer(t *testing.T) {
	const ranks, tokens = 4, 30
	for name, x := range map[string]struct {
		parallel moe.Parallel
		make     func(context.Context, *comm.Comm, ep.Config) (ep.Exchanger, error)
	}{
		"tp":    {moe.Parallel{TP: ranks, DP: 1}, nil},
		"tp+ep": {moe.Parallel{TP: ranks, DP: 1, EP: true}, nil},
		"dp":    {moe.Parallel{TP: 1, DP: ranks}, nil},
		"agrs": {moe.Parallel{TP: 1, DP: ranks, EP: true}, func(ctx context.Context, c *comm.Comm, cfg ep.Config) (ep.Exchanger, error) {
			return agrs.New(ctx, c, cfg)
		}},
		"alltoall": {moe.Parallel{TP: 1, DP: ranks, EP: true}, func(ctx context.Context, c *comm.Comm, cfg ep.Config) (ep.Exchanger, error) {
			return alltoall.New(ctx, c, cfg)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := moe.Config{Hidden: 32, NumExperts: 8, TopK: 3, Intermediate: 24, Renormalize: true, MaxTokens: tokens, Parallel: x.parallel}
			w, err := local.Open(local.Config{Ranks: ranks})
			require.NoError(t, err)
			want, wantStats := forward(t, w, cfg, x.make, tokens)
			r := newRig(t, ranks, time.Minute, Config{Workspace: 20 << 10}) // some calls are cut
			got, stats := forward(t, r.World, cfg, x.make, tokens)
			for rank := range want {
				for i, v := range want[rank] {
					if math.Float32bits(v) != math.Float32bits(got[rank][i]) {
						t.Fatalf("rank %d, element %d: %v, want %v", rank, i, got[rank][i], v)
					}
				}
			}
			require.Equal(t, wantStats, stats)
			require.NoError(t, r.Close(t.Context()))
			require.Zero(t, r.heap.used)
		})
	}
}

// forward runs a layer on all ranks, with different numbers of tokens where each has its own, and returns their rows, and the
// calls and bytes of each kind of collective.
func forward(t *testing.T, w *comm.World, cfg moe.Config, newExchanger func(context.Context, *comm.Comm, ep.Config) (ep.Exchanger, error), tokens int) ([][]float32, map[string][2]int64) {
	out, stats := make([][]float32, w.Size()), make([]comm.Stats, w.Size())
	commtest.Run(t, w, func(ctx context.Context, tb testing.TB, c *comm.Comm) {
		var exchanger ep.Exchanger
		var err error
		if newExchanger != nil {
			exchanger, err = newExchanger(ctx, c, cfg.Exchange())
			require.NoError(tb, err)
		}
		lo, hi := cfg.ExpertSlice(c.Rank())
		weights := moe.Weights{Router: numbers(1, cfg.NumExperts*cfg.Hidden), Expert: func(i int) (moe.Expert, error) {
			e, h, n := uint64(10+10*cfg.LocalExpert(c.Rank(), i)), cfg.Hidden, cfg.Intermediate*cfg.Hidden
			down, whole := []float32(nil), numbers(e+2, n)
			for row := range h {
				down = append(down, whole[row*cfg.Intermediate+lo:row*cfg.Intermediate+hi]...)
			}
			return moe.Expert{Gate: numbers(e, n)[lo*h : hi*h], Up: numbers(e+1, n)[lo*h : hi*h], Down: down}, nil
		}}
		layer, err := moe.New(ctx, c, cfg, weights, exchanger)
		require.NoError(tb, err)
		x, n := numbers(2, tokens*cfg.Hidden), tokens
		if cfg.Parallel.DP > 1 {
			n = tokens * c.Rank() / c.Size() // none on the first rank
			x = numbers(uint64(3+c.Rank()), n*cfg.Hidden)
		}
		y := make([]float32, n*cfg.Hidden)
		for range 2 {
			require.NoError(tb, layer.Forward(comm.Stream{}, comm.Of(y, cfg.Hidden), comm.Of(x, cfg.Hidden)))
		}
		out[c.Rank()], stats[c.Rank()] = y, c.Stats()
		if exchanger != nil {
			require.NoError(tb, exchanger.Close(ctx))
		}
	})
	sums := map[string][2]int64{}
	for _, s := range stats {
		for k, n := range s {
			if n.Calls > 0 {
				name := comm.OpKind(k).String()
				sums[name] = [2]int64{sums[name][0] + n.Calls, sums[name][1] + n.SentBytes}
			}
		}
	}
	return out, sums
}

func numbers(seed uint64, n int) []float32 {
	rng := rand.New(rand.NewPCG(seed, 9))
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(rng.NormFloat64()) / 3
	}
	return x
}
