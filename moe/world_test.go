package moe_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/comm/local"
	"github.com/weftgo/weft/ep"
	"github.com/weftgo/weft/moe"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// model is all the weights of one layer.
type model struct {
	cfg     moe.Config // without Parallel and MaxTokens
	router  []float32
	bias    []float32
	experts []moe.Expert
	shared  *moe.Expert
}

// randomModel fills a layer of cfg's sizes.
func randomModel(cfg moe.Config, seed uint64) *model {
	rng := rand.New(rand.NewPCG(seed, 1))
	fill := func(n int, scale float64) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(rng.NormFloat64() * scale)
		}
		return x
	}
	ffn := func(width int) moe.Expert {
		return moe.Expert{Gate: fill(width*cfg.Hidden, 0.2), Up: fill(width*cfg.Hidden, 0.2), Down: fill(width*cfg.Hidden, 0.2)}
	}
	m := &model{cfg: cfg, router: fill(cfg.NumExperts*cfg.Hidden, 0.2)}
	for range cfg.NumExperts {
		m.experts = append(m.experts, ffn(cfg.Intermediate))
	}
	if cfg.SharedIntermediate > 0 {
		e := ffn(cfg.SharedIntermediate)
		m.shared = &e
	}
	return m
}

// slice returns columns [lo, hi) of the width of e.
func slice(e moe.Expert, width, hidden, lo, hi int) moe.Expert {
	s := moe.Expert{Gate: e.Gate[lo*hidden : hi*hidden], Up: e.Up[lo*hidden : hi*hidden]}
	for row := range hidden {
		s.Down = append(s.Down, e.Down[row*width+lo:row*width+hi]...)
	}
	return s
}

// weights returns what rank needs.
func (m *model) weights(cfg moe.Config, rank int) moe.Weights {
	w := moe.Weights{Router: m.router, Bias: m.bias, Expert: func(local int) (moe.Expert, error) {
		lo, hi := cfg.ExpertSlice(rank)
		return slice(m.experts[cfg.LocalExpert(rank, local)], cfg.Intermediate, cfg.Hidden, lo, hi), nil
	}}
	if m.shared != nil {
		w.Shared = func() (moe.Expert, error) {
			lo, hi := cfg.SharedSlice(rank)
			return slice(*m.shared, cfg.SharedIntermediate, cfg.Hidden, lo, hi), nil
		}
	}
	return w
}

// strategy makes an exchanger; nil for the layouts that need none.
type strategy func(ctx context.Context, c *comm.Comm, cfg ep.Config) (ep.Exchanger, error)

func withLowLatency(ctx context.Context, c *comm.Comm, cfg ep.Config) (ep.Exchanger, error) {
	cfg.LowLatency = true
	return withAllToAll(ctx, c, cfg)
}

// split returns rows [lo, hi) of each rank: all of n everywhere with dp = 1, else an uneven split with counts from the seed.
func split(p moe.Parallel, n int, seed uint64) [][2]int {
	at := make([][2]int, p.Size())
	if p.DP == 1 {
		for i := range at {
			at[i] = [2]int{0, n}
		}
		return at
	}
	rng := rand.New(rand.NewPCG(seed, 2))
	lo := 0
	for i := range at {
		hi := n
		if i < len(at)-1 {
			hi = min(n, lo+rng.IntN(2*n/len(at)+1)*rng.IntN(2))
		}
		at[i] = [2]int{lo, hi}
		lo = hi
	}
	return at
}

// forward runs x [n, hidden] through the layer spread as p, and returns all rows: of rank 0 with dp = 1 (all ranks must have
// the same), else put together from the ranks. each, if not nil, is called on every rank with its layer at the end.
func (m *model) forward(t testing.TB, p moe.Parallel, s strategy, x []float32, at [][2]int, each func(c *comm.Comm, l *moe.Layer, before comm.Stats)) []float32 {
	cfg := m.cfg
	cfg.Parallel = p
	hidden := cfg.Hidden
	cfg.MaxTokens = max(1, len(x)/hidden)
	w, err := local.Open(local.Config{Ranks: p.Size(), Timeout: 20 * time.Second})
	require.NoError(t, err)
	outs := make([][]float32, p.Size())
	require.NoError(t, w.Run(context.Background(), func(ctx context.Context, c *comm.Comm) error {
		l, done, err := m.layer(ctx, c, cfg, s)
		if err != nil {
			return err
		}
		defer done()
		rows := at[c.Rank()]
		out := poisoned((rows[1] - rows[0]) * hidden)
		before := c.Stats()
		if err := l.Forward(comm.Stream{}, comm.Of(out, hidden), comm.Of(x[rows[0]*hidden:rows[1]*hidden], hidden)); err != nil {
			return err
		}
		outs[c.Rank()] = out
		if each != nil {
			each(c, l, before)
		}
		return nil
	}))
	require.NoError(t, w.Close(context.Background()))
	if p.DP == 1 {
		for r := range outs {
			requireSame(t, outs[0], outs[r], fmt.Sprintf("%v: ranks 0 and %d", p, r))
		}
		return outs[0]
	}
	var all []float32
	for _, o := range outs {
		all = append(all, o...)
	}
	return all
}

// layer makes rank's layer, with an exchanger of strategy s if there is one; done closes that.
func (m *model) layer(ctx context.Context, c *comm.Comm, cfg moe.Config, s strategy) (l *moe.Layer, done func(), err error) {
	var exchanger ep.Exchanger
	done = func() {}
	if s != nil {
		if exchanger, err = s(ctx, c, cfg.Exchange()); err != nil {
			return nil, nil, err
		}
		done = func() { _ = exchanger.Close(ctx) }
	}
	l, err = moe.New(ctx, c, cfg, m.weights(cfg, c.Rank()), exchanger)
	return l, done, err
}
