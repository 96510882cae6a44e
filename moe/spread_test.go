package moe_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/comm/local"
	"github.com/weftgo/weft/moe"
	"github.com/weftgo/weft/routing"
)

// TestMoreRanksThanExperts: ranks without an expert, or without a column of any, take part.
func TestMoreRanksThanExperts(t *testing.T) {
	cfg := moe.Config{Hidden: 17, NumExperts: 3, TopK: 2, Intermediate: 5, SharedIntermediate: 3, Scoring: moe.Sigmoid, Scale: 0.5}
	m := randomModel(cfg, 97)
	x := randomRows(13*cfg.Hidden, 101)
	var want []float32
	m.forward(t, moe.Parallel{TP: 1, DP: 1}, nil, x, [][2]int{{0, 13}}, func(_ *comm.Comm, l *moe.Layer, _ comm.Stats) {
		ids, weights := l.Routing()
		want = m.reference(x, ids, weights)
	})
	for _, c := range every(8) {
		requireNear(t, want, m.forward(t, c.p, c.s, x, split(c.p, 13, 3), nil), 2e-4, c.p.String())
	}
}

// TestAllTokensToOneExpert: a correction bias sends every token to the same two experts.
func TestAllTokensToOneExpert(t *testing.T) {
	m := randomModel(odd, 103)
	m.cfg.TopK = 2
	m.bias = make([]float32, m.cfg.NumExperts)
	m.bias[4], m.bias[5] = 20, 10
	x := randomRows(33*m.cfg.Hidden, 107)
	var want []float32
	for _, c := range append([]layout{{moe.Parallel{TP: 1, DP: 1}, nil}}, every(5)...) {
		got := m.forward(t, c.p, c.s, x, split(c.p, 33, 5), func(_ *comm.Comm, l *moe.Layer, _ comm.Stats) {
			ids, weights := l.Routing()
			for i := 0; i < len(ids); i += 2 {
				require.Equal(t, []int32{4, 5}, ids[i:i+2])
				require.Less(t, weights[i], float32(1), "the bias must not weigh")
			}
			if c.p.Size() == 1 {
				want = m.reference(x, ids, weights)
				require.Equal(t, int64(33), l.Load()[4])
			}
		})
		requireNear(t, want, got, 2e-4, c.p.String())
	}
}

// TestRoundRobinPlacement: another placement gives the same bits in every strategy, too.
func TestRoundRobinPlacement(t *testing.T) {
	m := randomModel(odd, 109)
	m.cfg.Placement = routing.Placement{NumExperts: m.cfg.NumExperts, Size: 3, RoundRobin: true}
	x := randomRows(21*m.cfg.Hidden, 113)
	want := m.forward(t, tpEP(3), nil, x, split(tpEP(3), 21, 0), nil)
	for _, s := range []strategy{withAgRs, withAllToAll} {
		requireSame(t, want, m.forward(t, dpEP(3), s, x, split(dpEP(3), 21, 7), nil), "round robin")
	}
}

// TestSharedWorkspace: two layers of a rank that share scratch memory give what they give alone.
func TestSharedWorkspace(t *testing.T) {
	a, b := randomModel(odd, 127), randomModel(odd, 131)
	h := odd.Hidden
	for _, c := range every(3) {
		x := randomRows(12*h, 137)
		at := split(c.p, 12, 1)
		want := b.forward(t, c.p, c.s, a.forward(t, c.p, c.s, x, at, nil), at, nil)
		outs := make([][]float32, 3)
		w, err := local.Open(local.Config{Ranks: 3})
		require.NoError(t, err)
		require.NoError(t, w.Run(context.Background(), func(ctx context.Context, r *comm.Comm) error {
			cfg := odd
			cfg.Parallel, cfg.MaxTokens, cfg.Workspace = c.p, 12, new(moe.Workspace)
			rows := at[r.Rank()]
			y := append([]float32(nil), x[rows[0]*h:rows[1]*h]...)
			for _, m := range []*model{a, b} {
				l, done, err := m.layer(ctx, r, cfg, c.s)
				if err != nil {
					return err
				}
				defer done()
				out := poisoned(len(y))
				if err := l.Forward(comm.Stream{}, comm.Of(out, h), comm.Of(y, h)); err != nil {
					return err
				}
				y = out
			}
			outs[r.Rank()] = y
			return nil
		}))
		require.NoError(t, w.Close(context.Background()))
		for r, out := range outs {
			requireSame(t, want[at[r][0]*h:at[r][1]*h], out, fmt.Sprintf("%v rank %d", c.p, r))
		}
	}
}
