package commtest

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/dtype"
)

var kinds = []comm.OpKind{comm.AllReduce, comm.AllGather, comm.AllGatherV, comm.ReduceScatter, comm.ReduceScatterV,
	comm.AllToAllV, comm.Broadcast, comm.Reduce}

// collectives tries every collective with every type and shape.
func (s *suite) collectives(t *testing.T, ranks int) {
	for _, k := range kinds {
		t.Run(k.String(), func(t *testing.T) {
			var cases []trial
			for _, typ := range dtype.All() {
				cases = append(cases, shapes(k, typ, ranks)...)
			}
			cases = append(cases, several(k, ranks)...)
			s.trials(t, ranks, cases)
		})
	}
	t.Run("barrier", func(t *testing.T) { s.barrier(t, ranks) })
	t.Run("counters", func(t *testing.T) { s.counters(t, ranks) })
}

// shapes are the cases of one type: small and large, with zeros, gaps, spare rows, in place, counts on the device.
func shapes(k comm.OpKind, typ dtype.DType, ranks int) []trial {
	base := trial{kind: k, types: []dtype.DType{typ}, cols: 5, counts: uniform(ranks, 3), root: ranks - 1}
	var list []trial
	add := func(change func(x *trial)) {
		x := base
		change(&x)
		list = append(list, x)
	}
	add(func(x *trial) {})
	add(func(x *trial) { x.cols, x.gap = 13, 6 })
	add(func(x *trial) { x.counts = uniform(ranks, 0) })
	if typ == dtype.F32 || typ == dtype.BF16 {
		add(func(x *trial) { x.counts, x.cols, x.root = uniform(ranks, 67), 129, 0 })
		add(func(x *trial) { x.counts, x.cols, x.gap = uniform(ranks, 40), 301, 3 })
	}
	if k != comm.AllToAllV && k != comm.Broadcast {
		add(func(x *trial) { x.inPlace, x.cols = true, 65 })
		add(func(x *trial) { x.inPlace, x.gap = true, 4 })
	}
	if !base.ragged() {
		return list
	}
	for _, counts := range [][]int{raggedCounts(ranks), onlyRank(ranks, 0), onlyRank(ranks, ranks-1)} {
		add(func(x *trial) { x.counts = counts })
		add(func(x *trial) { x.counts, x.gap, x.extra = counts, 3, 2 })
		add(func(x *trial) { x.counts, x.device = counts, true })
		add(func(x *trial) { x.counts, x.device, x.extra = counts, true, 5 })
		if k != comm.AllToAllV {
			add(func(x *trial) { x.counts, x.inPlace = counts, true })
		}
	}
	add(func(x *trial) { x.counts, x.device = uniform(ranks, 0), true })
	return list
}

// several are calls with more than one tensor, of different types and columns.
func several(k comm.OpKind, ranks int) []trial {
	x := trial{kind: k, types: []dtype.DType{dtype.BF16, dtype.I32, dtype.F32}, cols: 7, counts: uniform(ranks, 4)}
	list := []trial{x}
	if x.ragged() {
		x.counts = raggedCounts(ranks)
		list = append(list, x)
		x.device, x.gap = true, 2
		list = append(list, x)
	}
	return list
}

// brieflyAll tries each collective a few times.
func (s *suite) brieflyAll(t *testing.T, ranks int) {
	var cases []trial
	for _, k := range kinds {
		x := trial{kind: k, types: []dtype.DType{dtype.F32}, cols: 33, counts: uniform(ranks, 2)}
		cases = append(cases, x)
		x.types, x.cols = []dtype.DType{dtype.BF16}, 300
		cases = append(cases, x)
		if x.ragged() {
			x.counts = raggedCounts(ranks)
			cases = append(cases, x)
			x.device = true
			cases = append(cases, x)
		}
	}
	s.trials(t, ranks, cases)
}

func uniform(ranks, rows int) []int {
	n := make([]int, ranks)
	for i := range n {
		n[i] = rows
	}
	return n
}

// raggedCounts has zeros, ones and larger numbers.
func raggedCounts(ranks int) []int {
	n := make([]int, ranks)
	for i := range n {
		n[i] = []int{3, 0, 1, 6, 0, 2, 11}[i%7]
	}
	return n
}

// onlyRank gives all rows to one rank.
func onlyRank(ranks, rank int) []int {
	n := make([]int, ranks)
	n[rank] = 4
	return n
}

// barrier checks that no rank leaves before all have come: each adds to its own word and reads all after the barrier.
func (s *suite) barrier(t *testing.T, ranks int) {
	w := s.world(t, ranks)
	steps := make([]int, ranks)
	l := &ledger{complete: s.complete}
	Run(t, w, func(ctx context.Context, tb testing.TB, c *comm.Comm) {
		for step := 1; step <= 100; step++ {
			steps[c.Rank()] = step
			if !l.settle(tb, comm.Barrier, host(ctx, c)) {
				return
			}
			for rank, got := range steps {
				if got != step {
					tb.Fatalf("after barrier %d rank %d is at %d", step, rank, got)
				}
			}
			l.settle(tb, comm.Barrier, host(ctx, c))
		}
	})
	l.finish(t)
}

// host is a barrier of the goroutines and not only of the streams.
func host(ctx context.Context, c *comm.Comm) error {
	if err := c.Barrier(comm.Stream{}); err != nil {
		return err
	}
	return c.Wait(ctx, comm.Stream{})
}

// counters holds calls, launches and bytes against the formulas.
func (s *suite) counters(t *testing.T, ranks int) {
	const cols, size = 24, 2
	w := s.world(t, ranks)
	l := &ledger{complete: s.complete}
	for _, k := range kinds {
		x := trial{kind: k, types: []dtype.DType{dtype.BF16}, cols: cols, counts: uniform(ranks, 5)}
		if x.ragged() {
			x.counts = raggedCounts(ranks)
		}
		p := x.pose()
		before := make([]comm.Stats, ranks)
		after := make([]comm.Stats, ranks)
		Run(t, w, func(ctx context.Context, tb testing.TB, c *comm.Comm) {
			before[c.Rank()] = c.Stats()
			_, err := p.try(tb, c)
			l.settle(tb, x, err)
			after[c.Rank()] = c.Stats()
		})
		var got comm.Count
		for i := range after {
			d := after[i].Sub(before[i])
			require.EqualValues(t, 1, d[k].Calls, "%v: calls of rank %d", k, i)
			require.EqualValues(t, 1, d.Total().Calls, "%v: calls of rank %d", k, i)
			require.Positive(t, d[k].Launches)
			require.LessOrEqual(t, d[k].Wait, d[k].Time)
			got.SentBytes += d[k].SentBytes
		}
		require.EqualValues(t, x.movedRows()*cols*size, got.SentBytes, "%v: bytes moved between ranks", x)
	}
	l.finish(t)
}

// movedRows is the formula for what a collective moves between different ranks, over all ranks.
func (x trial) movedRows() (rows int) {
	others := len(x.counts) - 1
	switch x.kind {
	case comm.AllReduce:
		return 2 * others * x.counts[0]
	case comm.AllToAllV:
		for i := range x.counts {
			for j := range x.counts {
				if i != j {
					rows += x.sends(i, j)
				}
			}
		}
		return rows
	case comm.Broadcast, comm.Reduce:
		return others * x.counts[0]
	}
	return others * x.before(len(x.counts))
}
