package moe_test

import (
	"context"
	"errors"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/comm/local"
	"github.com/weftgo/weft/dtype"
	"github.com/weftgo/weft/ep"
	"github.com/weftgo/weft/moe"
	"github.com/weftgo/weft/trace"
)

// construct makes the layer of cfg on a world of its size, with an exchanger of s for the configuration xc.
func construct(t *testing.T, m *model, cfg moe.Config, s strategy, xc ep.Config, change func(rank int, cfg *moe.Config, w *moe.Weights)) error {
	w, err := local.Open(local.Config{Ranks: cfg.Parallel.Size()})
	require.NoError(t, err)
	err = w.Run(context.Background(), func(ctx context.Context, c *comm.Comm) error {
		var x ep.Exchanger
		if s != nil {
			var err error
			if x, err = s(ctx, c, xc); err != nil {
				return err
			}
		}
		cfg := cfg
		weights := m.weights(cfg, c.Rank())
		if change != nil {
			change(c.Rank(), &cfg, &weights)
		}
		_, err := moe.New(ctx, c, cfg, weights, x)
		return err
	})
	_ = w.Close(context.Background())
	return err
}

func TestRefusals(t *testing.T) {
	m := randomModel(odd, 53)
	cfg := m.cfg
	cfg.MaxTokens = 8
	cfg.Parallel = dpEP(2)
	tp := cfg
	tp.Parallel = moe.Parallel{TP: 2, DP: 1}
	good := cfg.Exchange()
	with := func(f func(c *ep.Config)) ep.Config { c := good; f(&c); return c }
	for _, c := range []struct {
		name   string
		cfg    moe.Config
		s      strategy
		xc     ep.Config
		change func(rank int, cfg *moe.Config, w *moe.Weights)
		want   string
	}{
		{"not needed", tp, withAllToAll, good, nil, "exchanger alltoall given, but tp2 needs none"},
		{"missing", cfg, nil, good, nil, "dp2+ep2 needs an exchanger"},
		{"hidden", cfg, withAgRs, with(func(c *ep.Config) { c.Hidden = 71 }), nil, "agrs was made with hidden 71, the layer needs 72"},
		{"top-k", cfg, withAgRs, with(func(c *ep.Config) { c.TopK = 2 }), nil, "TopK 2"},
		{"experts", cfg, withAgRs, with(func(c *ep.Config) { c.NumExperts, c.Placement.NumExperts = 11, 11 }), nil, "NumExperts 11"},
		{"output", cfg, withAgRs, with(func(c *ep.Config) { c.Output = ep.ExpertRows }), nil, "Output expert rows, the layer needs partial rows"},
		{"layout", cfg, withAllToAll, with(func(c *ep.Config) { c.Layout, c.Output = ep.Expanded, ep.ExpertRows }), nil, "Layout expanded"},
		{"type", cfg, withAgRs, with(func(c *ep.Config) { c.DType = dtype.BF16 }), nil, "DType bf16, the layer needs f32"},
		{"invariant", cfg, withAllToAll, with(func(c *ep.Config) { c.Output, c.RankInvariant = ep.ExpertRows, true }), nil, "the layer needs"},
		{"placement", cfg, withAgRs, with(func(c *ep.Config) { c.Placement.RoundRobin = true }), nil, "Placement"},
		{"rows", cfg, withAgRs, with(func(c *ep.Config) { c.MaxTokensPerRank = 7 }), nil, "MaxTokensPerRank 7, the layer for MaxTokens 8"},
		{"router", tp, nil, good, func(_ int, _ *moe.Config, w *moe.Weights) { w.Router = w.Router[1:] }, "the router has 719 values"},
		{"bias", tp, nil, good, func(_ int, _ *moe.Config, w *moe.Weights) { w.Bias = make([]float32, 3) }, "bias of 3 values for 10"},
		{"no experts", tp, nil, good, func(_ int, _ *moe.Config, w *moe.Weights) { w.Expert = nil }, "Expert is nil"},
		{"shared", tp, nil, good, func(_ int, c *moe.Config, _ *moe.Weights) { c.SharedIntermediate = 8 }, "SharedIntermediate 8"},
		{"whole weights for slices", tp, nil, good, func(_ int, c *moe.Config, w *moe.Weights) {
			w.Expert = func(i int) (moe.Expert, error) { return m.experts[i], nil }
		}, "gate has 2880 values; width 20 x hidden 72 are 1440"},
		{"loader", tp, nil, good, func(_ int, c *moe.Config, w *moe.Weights) {
			w.Expert = func(i int) (moe.Expert, error) { return moe.Expert{}, errors.New("no such tensor") }
		}, "local expert 0 (expert 0, columns"},
		{"ranks differ", tp, nil, good, func(rank int, c *moe.Config, _ *moe.Weights) { c.MaxTokens += rank }, "ranks 0 and 1 give different"},
		{"routers differ", tp, nil, good, func(rank int, _ *moe.Config, w *moe.Weights) {
			w.Router = append([]float32(nil), w.Router...)
			w.Router[5] += float32(rank)
		}, "ranks 0 and 1 give different"},
		{"one rank's router", tp, nil, good, func(rank int, _ *moe.Config, w *moe.Weights) { w.Router = w.Router[rank:] }, "rank 1"},
		{"scale", tp, nil, good, func(_ int, c *moe.Config, _ *moe.Weights) { c.Scale = float32(math.NaN()) }, "Scale NaN"},
		{"too many rows", tp, nil, good, func(_ int, c *moe.Config, _ *moe.Weights) { c.MaxTokens = math.MaxInt }, "MaxTokens 9223372036854775807"},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.ErrorContains(t, construct(t, m, c.cfg, c.s, c.xc, c.change), c.want)
		})
	}
	require.NoError(t, construct(t, m, cfg, withAgRs, good, nil))
}

// one makes the layer on one rank and calls fn with it.
func one(t testing.TB, m *model, maxTokens int, fn func(l *moe.Layer)) {
	cfg := m.cfg
	cfg.MaxTokens, cfg.Parallel = maxTokens, moe.Parallel{TP: 1, DP: 1}
	w, err := local.Open(local.Config{Ranks: 1})
	require.NoError(t, err)
	l, err := moe.New(context.Background(), w.Local()[0], cfg, m.weights(cfg, 0), nil)
	require.NoError(t, err)
	fn(l)
	require.NoError(t, w.Close(context.Background()))
}

func TestForwardRefusals(t *testing.T) {
	m := randomModel(odd, 59)
	buf := func(n, cols int) comm.Buffer { return comm.Of(make([]float32, n*cols), cols) }
	both := buf(3, 72)
	one(t, m, 4, func(l *moe.Layer) {
		for _, c := range []struct {
			out, x comm.Buffer
			want   string
		}{
			{buf(5, 72), buf(5, 72), "5 tokens > MaxTokens 4"},
			{buf(2, 72), buf(3, 72), "out has 2 rows, x 3"},
			{buf(2, 71), buf(2, 72), "needs 72 columns"},
			{buf(2, 72), buf(2, 8), "needs 72 columns"},
			{comm.Buffer{}, buf(2, 72), "out: no buffer"},
			{both, both, "overlaps"},
			{both.Slice(0, 2), both.Slice(1, 3), "overlaps"},
			{buf(2, 72), comm.Of(make([]int32, 144), 72), "the layer takes f32, bf16 and f16"},
		} {
			err := l.Forward(comm.Stream{}, c.out, c.x)
			require.ErrorContains(t, err, c.want)
			require.ErrorIs(t, err, comm.Invalid)
		}
	})
}

// TestOtherBuffers: bf16 and strided rows give the f32 result of the same values, rounded once.
func TestOtherBuffers(t *testing.T) {
	m := randomModel(odd, 61)
	h := m.cfg.Hidden
	narrow := make([]dtype.BFloat16, 6*h)
	x := randomRows(6*h, 67)
	for i, v := range x {
		narrow[i] = dtype.ToBFloat16(v)
		x[i] = narrow[i].Float32()
	}
	one(t, m, 6, func(l *moe.Layer) {
		want := poisoned(6 * h)
		require.NoError(t, l.Forward(comm.Stream{}, comm.Of(want, h), comm.Of(x, h)))
		out := make([]dtype.BFloat16, 6*h)
		require.NoError(t, l.Forward(comm.Stream{}, comm.Of(out, h), comm.Of(narrow, h)))
		for i := range want {
			require.Equal(t, dtype.ToBFloat16(want[i]), out[i])
		}
		wide, wideOut := poisoned(6*2*h), poisoned(6*2*h)
		for i := range 6 {
			copy(wide[i*2*h:], x[i*h:(i+1)*h])
		}
		require.NoError(t, l.Forward(comm.Stream{}, comm.Of(wideOut, 2*h).Columns(0, h), comm.Of(wide, 2*h).Columns(0, h)))
		for i := range 6 {
			requireSame(t, want[i*h:(i+1)*h], wideOut[i*2*h:i*2*h+h], "strided")
			require.True(t, wideOut[i*2*h+h] != wideOut[i*2*h+h], "a column beyond out was written")
		}
	})
}

func TestLane(t *testing.T) {
	m := randomModel(odd, 71)
	recorder := trace.New(2)
	m.forward(t, dpEP(2), withAgRs, randomRows(4*72, 1), split(dpEP(2), 4, 1), func(c *comm.Comm, l *moe.Layer, _ comm.Stats) {
		l.SetLane(recorder.Rank(c.Rank()))
		x := make([]float32, 72)
		require.NoError(t, l.Forward(comm.Stream{}, comm.Of(make([]float32, 72), 72), comm.Of(x, 72)))
	})
	names := map[string]bool{}
	for _, s := range recorder.ByName() {
		names[s.Name] = true
	}
	require.Equal(t, map[string]bool{"router": true, "dispatch": true, "experts": true, "combine": true}, names)
}
