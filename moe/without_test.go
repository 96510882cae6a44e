package moe_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/moe"
	"github.com/weftgo/weft/routing"
)

// muted returns the model with experts that say nothing.
func (m *model) muted(experts []int) *model {
	quiet := *m
	quiet.experts = slices.Clone(m.experts)
	for _, e := range experts {
		quiet.experts[e].Down = make([]float32, len(m.experts[e].Down))
	}
	return &quiet
}

// TestWithoutRanks: a layer over the ranks that are left computes what the whole layer would if the missing experts said nothing.
// The weights of a token's other experts are not renormalised, as the reference's are not.
func TestWithoutRanks(t *testing.T) {
	for name, p := range map[string]routing.Placement{
		"plain":       {NumExperts: 10, Size: 5},
		"round robin": {NumExperts: 10, Size: 5, RoundRobin: true},
		"replicas":    {NumExperts: 10, Size: 5, Physical: []int32{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 2, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := odd
			cfg.Renormalize, cfg.SharedIntermediate = true, 9
			m := randomModel(cfg, 5)
			left, err := p.Without(1, 4)
			require.NoError(t, err)
			require.NotEmpty(t, left.Missing())
			quiet := m.muted(left.Missing())
			const n = 40
			x := randomRows(n*cfg.Hidden, 8)
			want := quiet.forward(t, dpEP(1), nil, x, split(dpEP(1), n, 0), func(_ *comm.Comm, l *moe.Layer, _ comm.Stats) {
				ids, weights := l.Routing()
				dropped := 0
				for _, e := range ids {
					if slices.Contains(left.Missing(), int(e)) {
						dropped++
					}
				}
				require.NotZero(t, dropped, "no token chose a missing expert")
				requireNear(t, m.reference(x, ids, weights), m.forward(t, dpEP(1), nil, x, split(dpEP(1), n, 0), nil), 2e-5, "whole")
			})
			placed := *m
			placed.cfg.Placement = left
			var first []float32
			for _, l := range []layout{{tpEP(3), nil}, {dpEP(3), withAgRs}, {dpEP(3), withAllToAll}} {
				got := placed.forward(t, l.p, l.s, x, split(l.p, n, 3), nil)
				requireNear(t, want, got, 2e-5, l.p.String())
				if l.p.DP > 1 && first != nil {
					requireSame(t, first, got, "alltoall and agrs")
				}
				if l.p.DP > 1 {
					first = got
				}
			}
			placed.cfg.RankInvariant = true
			quiet.cfg.RankInvariant = true
			exact := quiet.forward(t, dpEP(1), nil, x, split(dpEP(1), n, 0), nil)
			requireSame(t, exact, placed.forward(t, dpEP(3), withAllToAll, x, split(dpEP(3), n, 3), nil), "rank invariant")
		})
	}
}
