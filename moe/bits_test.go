package moe_test

import (
	"context"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/agrs"
	"github.com/weftgo/weft/alltoall"
	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/ep"
	"github.com/weftgo/weft/moe"
)

func withAgRs(ctx context.Context, c *comm.Comm, cfg ep.Config) (ep.Exchanger, error) {
	return agrs.New(ctx, c, cfg)
}

func withAllToAll(ctx context.Context, c *comm.Comm, cfg ep.Config) (ep.Exchanger, error) {
	return alltoall.New(ctx, c, cfg)
}

// Odd sizes throughout: nothing divides.
var odd = moe.Config{Hidden: 72, NumExperts: 10, TopK: 3, Intermediate: 40}

var worlds = []int{1, 2, 3, 5, 6, 7, 8}

func dpEP(n int) moe.Parallel { return moe.Parallel{TP: 1, DP: n, EP: true} }
func tpEP(n int) moe.Parallel { return moe.Parallel{TP: n, DP: 1, EP: true} }

// layout is one way to spread a layer.
type layout struct {
	p moe.Parallel
	s strategy
}

// every returns all ways for n ranks.
func every(n int) []layout {
	return []layout{{tpEP(n), nil}, {moe.Parallel{TP: n, DP: 1}, nil}, {moe.Parallel{TP: 1, DP: n}, nil},
		{dpEP(n), withAgRs}, {dpEP(n), withAllToAll}}
}

// reference computes the layer in float64 from ids and weights that the router gave.
func (m *model) reference(x []float32, ids []int32, weights []float32) []float32 {
	h, k := m.cfg.Hidden, m.cfg.TopK
	out := make([]float32, len(x))
	for row := range len(x) / h {
		sum := make([]float64, h)
		add := func(e moe.Expert, weight float64) {
			width := len(e.Gate) / h
			for j := range width {
				var gate, up float64
				for i, v := range x[row*h : (row+1)*h] {
					gate += float64(v) * float64(e.Gate[j*h+i])
					up += float64(v) * float64(e.Up[j*h+i])
				}
				a := gate / (1 + math.Exp(-gate)) * up * weight
				for i := range sum {
					sum[i] += a * float64(e.Down[i*width+j])
				}
			}
		}
		for j := range k {
			add(m.experts[ids[row*k+j]], float64(weights[row*k+j]))
		}
		if m.shared != nil {
			add(*m.shared, 1)
		}
		for i, v := range sum {
			out[row*h+i] = float32(v)
		}
	}
	return out
}

// TestBitsOfOnePlacement: agrs, alltoall and dp = 1 give equal outputs (==) for the same tokens and the same experts per rank.
func TestBitsOfOnePlacement(t *testing.T) {
	m := randomModel(odd, 5)
	for _, n := range worlds[1:] {
		for seed := range uint64(3) {
			numTokens := []int{37, 5, 0}[seed]
			x := randomRows(numTokens*m.cfg.Hidden, seed)
			whole := m.forward(t, tpEP(n), nil, x, split(tpEP(n), numTokens, 0), nil)
			for _, row := range whole {
				require.False(t, row != row, "NaN left in out")
			}
			for name, s := range map[string]strategy{"agrs": withAgRs, "alltoall": withAllToAll, "alltoall, low latency": withLowLatency} {
				at := split(dpEP(n), numTokens, seed+uint64(n))
				requireSame(t, whole, m.forward(t, dpEP(n), s, x, at, nil), fmt.Sprintf("%s on %d ranks, rows %v", name, n, at))
			}
		}
	}
}

// TestLayouts: every layout gives the layer's values, shared experts counted once.
func TestLayouts(t *testing.T) {
	for _, shared := range []int{0, 24} {
		cfg := odd
		cfg.SharedIntermediate = shared
		cfg.Scale = 2.5
		m := randomModel(cfg, 7)
		x := randomRows(29*cfg.Hidden, 9)
		var want []float32
		m.forward(t, moe.Parallel{TP: 1, DP: 1}, nil, x, [][2]int{{0, 29}}, func(_ *comm.Comm, l *moe.Layer, _ comm.Stats) {
			ids, weights := l.Routing()
			want = m.reference(x, ids, weights)
		})
		for _, n := range worlds {
			for _, p := range []moe.Parallel{{TP: n, DP: 1}, tpEP(n), {TP: 1, DP: n}, dpEP(n), {TP: 2, DP: n, EP: true}, {TP: 2, DP: n}} {
				if p.Size() > 8 {
					continue
				}
				strategies := []strategy{nil}
				if p.UseExchange() {
					strategies = []strategy{withAgRs, withAllToAll}
				}
				for _, s := range strategies {
					got := m.forward(t, p, s, x, split(p, 29, uint64(n)), nil)
					requireNear(t, want, got, 2e-4, fmt.Sprintf("%v shared %d", p, shared))
				}
			}
		}
	}
}

// TestRankInvariant: the same bits on 1 to 8 ranks.
func TestRankInvariant(t *testing.T) {
	for _, shared := range []int{0, 24} {
		cfg := odd
		cfg.RankInvariant, cfg.Renormalize, cfg.SharedIntermediate = true, true, shared
		m := randomModel(cfg, 11)
		x := randomRows(31*cfg.Hidden, 13)
		one := m.forward(t, dpEP(1), nil, x, [][2]int{{0, 31}}, nil)
		for n := 2; n <= 8; n++ {
			got := m.forward(t, dpEP(n), withAllToAll, x, split(dpEP(n), 31, uint64(n)), nil)
			requireSame(t, one, got, fmt.Sprintf("%d ranks, shared %d", n, shared))
		}
	}
}

// TestFiftyRuns: nothing depends on timing.
func TestFiftyRuns(t *testing.T) {
	m := randomModel(odd, 17)
	x := randomRows(40*m.cfg.Hidden, 19)
	for _, c := range every(4) {
		at := split(c.p, 40, 3)
		first := m.forward(t, c.p, c.s, x, at, nil)
		for range 50 {
			requireSame(t, first, m.forward(t, c.p, c.s, x, at, nil), c.p.String())
		}
	}
}

// TestNaNRow: NaN in one token stays there, in every layout.
func TestNaNRow(t *testing.T) {
	m := randomModel(odd, 23)
	h := m.cfg.Hidden
	x := randomRows(20*h, 29)
	bad := append([]float32(nil), x...)
	bad[7*h+3] = float32(math.NaN())
	for _, c := range every(3) {
		at := split(c.p, 20, 5)
		want, got := m.forward(t, c.p, c.s, x, at, nil), m.forward(t, c.p, c.s, bad, at, nil)
		for i := range want {
			if i/h == 7 {
				require.True(t, got[i] != got[i], "%v: value %d of the row is %v", c.p, i, got[i])
			} else if want[i] != got[i] {
				t.Fatalf("%v: row %d differs", c.p, i/h)
			}
		}
	}
}
