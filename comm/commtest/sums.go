package commtest

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/dtype"
)

// sums tries every reduction on values whose result depends on the order, and that results repeat.
func (s *suite) sums(t *testing.T) {
	for _, typ := range dtype.All() {
		t.Run(typ.String(), func(t *testing.T) {
			var cases []trial
			for _, r := range []comm.ReduceOp{comm.Sum, comm.Prod, comm.Min, comm.Max, comm.Avg} {
				if r == comm.Avg && !typ.IsFloat() {
					continue
				}
				for _, k := range kinds {
					if !k.Reduces() {
						continue
					}
					x := trial{kind: k, reduce: r, types: []dtype.DType{typ}, cols: 67, counts: uniform(s.most(), 9), rough: true}
					cases = append(cases, x)
					x.special, x.inPlace = true, true
					cases = append(cases, x)
				}
			}
			s.trials(t, s.most(), cases)
		})
	}
	t.Run("uniform equals ragged", s.uniformEqualsRagged)
	t.Run("50 runs equal", s.repeats)
	t.Run("order matters", orderMatters)
}

// orderMatters checks the suite itself: the rough values give other bits in another order.
func orderMatters(t *testing.T) {
	var forward, backward []tensor
	for i := range 8 {
		forward = append(forward, rough(dtype.F32, 9, 67, i, 0, false))
		backward = append(backward, rough(dtype.F32, 9, 67, 7-i, 0, false))
	}
	require.NotEqual(t, -1, mismatch(reduce(forward, comm.Sum), reduce(backward, comm.Sum)))
}

// uniformEqualsRagged compares the bits of the uniform form, the ragged form with equal counts, counts on the device
// and, cut to pieces, the all-reduce.
func (s *suite) uniformEqualsRagged(t *testing.T) {
	ranks := s.most()
	w := s.world(t, ranks)
	l := &ledger{complete: s.complete}
	Run(t, w, func(ctx context.Context, tb testing.TB, c *comm.Comm) {
		for _, typ := range []dtype.DType{dtype.F32, dtype.BF16, dtype.F16, dtype.F8E4M3} {
			x := trial{kind: comm.ReduceScatter, types: []dtype.DType{typ}, cols: 131, counts: uniform(ranks, 7), rough: true}
			first, err := x.pose().try(tb, c)
			if !l.settle(tb, x, err) {
				continue
			}
			y := x
			y.kind = comm.ReduceScatterV
			for _, y.device = range []bool{false, true} {
				again, err := y.pose().try(tb, c)
				if l.settle(tb, y, err) {
					require.Equal(tb, first, again, "%v and %v", x, y)
				}
			}
			z := x
			z.kind, z.counts = comm.AllReduce, uniform(ranks, 7*ranks)
			all, err := z.pose().try(tb, c)
			if l.settle(tb, z, err) {
				require.Equal(tb, first[0], all[0].slice(7*c.Rank(), 7*c.Rank()+7), "%v and %v", x, z)
			}
		}
	})
	l.finish(t)
}

// repeats runs collectives 50 times on the same inputs.
func (s *suite) repeats(t *testing.T) {
	ranks := s.most()
	w := s.world(t, ranks)
	l := &ledger{complete: s.complete}
	Run(t, w, func(ctx context.Context, tb testing.TB, c *comm.Comm) {
		for _, k := range []comm.OpKind{comm.AllReduce, comm.ReduceScatterV} {
			x := trial{kind: k, types: []dtype.DType{dtype.BF16}, cols: 77, counts: uniform(ranks, 16), rough: true}.pose()
			first, err := x.try(tb, c)
			if !l.settle(tb, x, err) {
				continue
			}
			for i := range 49 {
				again, err := x.try(tb, c)
				require.NoError(tb, err)
				require.Equal(tb, first, again, fmt.Sprintf("run %d of %v", i+2, x))
			}
		}
	})
	l.finish(t)
}
