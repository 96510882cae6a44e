package exchange

import (
	"slices"
	"sync"

	"github.com/weftgo/weft/benchmarks/suite"
	"github.com/weftgo/weft/ep"
)

// traffic adds up what the exchangers of all ranks counted while the clock ran.
type traffic struct {
	name                         string
	mu                           sync.Mutex
	dispatches                   int64
	tokens, copies, cross, slots int64
	busiest                      int64 // slots of the busiest rank
}

// add takes one rank's counters before and after.
func (t *traffic) add(before, after ep.Stats) {
	t.mu.Lock()
	defer t.mu.Unlock()
	slots := after.NumSlots - before.NumSlots
	t.dispatches = after.NumDispatches - before.NumDispatches // the same on all ranks
	t.tokens += after.NumTokens - before.NumTokens
	t.copies += after.NumCopies - before.NumCopies
	t.cross += after.NumCrossCopies - before.NumCrossCopies
	t.slots += slots
	t.busiest = max(t.busiest, slots)
}

// columns turns counters and times into a row of the table.
func (t *traffic) columns(op string, c *clock, s Setup) Result {
	ranks, rowBytes := s.ranks(), find(op).CopyBytes(s)
	r := Result{Op: op, Backend: t.name, Iters: c.slowest()}
	sorted := slices.Sorted(slices.Values(r.Iters))
	r.P50Us, r.P99Us = suite.Percentile(sorted, 50), suite.Percentile(sorted, 99)
	if calls := float64(t.dispatches) * float64(ranks); calls > 0 && r.P50Us > 0 {
		r.LogicalGBs = float64(t.copies) / calls * float64(rowBytes) / r.P50Us / 1e3
		r.WireGBs = float64(t.cross) / calls * float64(rowBytes) / r.P50Us / 1e3
	}
	if t.tokens > 0 {
		r.CopiesPerToken = float64(t.copies) / float64(t.tokens)
	}
	if t.slots > 0 {
		r.MaxOverMean = float64(t.busiest) * float64(ranks) / float64(t.slots)
	}
	return r
}
