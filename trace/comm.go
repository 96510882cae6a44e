package trace

import (
	"time"

	"github.com/weftgo/weft/comm"
)

var _ comm.Tracer = (*Recorder)(nil)

// Begin opens the span of an operation on the lane of that rank of the world.
// With End it makes a Recorder, also a nil one, a [comm.Tracer] for every rank:
//
//	c.SetTracer(recorder)
//
// Every collective of c, and of groups that c.Split makes later, is then a span
// with its launches, bytes and wait.
func (r *Recorder) Begin(rank int, op *comm.Op) { r.Rank(rank).beginOp(op) }

// End closes the span that Begin opened.
func (r *Recorder) End(rank int, op *comm.Op, err error) { r.Rank(rank).endOp(op, err) }

// Tracer returns what [comm.Comm.SetTracer] takes to put the collectives of a
// Comm on this lane, whatever its rank: for streams of their own, or where
// several worlds share a recorder. It returns nil if l is nil.
func (l *Lane) Tracer() comm.Tracer {
	if l == nil {
		return nil
	}
	return laneTracer{l}
}

// laneTracer is a lane that hears of operations.
type laneTracer struct{ lane *Lane }

func (t laneTracer) Begin(_ int, op *comm.Op)          { t.lane.beginOp(op) }
func (t laneTracer) End(_ int, op *comm.Op, err error) { t.lane.endOp(op, err) }

func (l *Lane) beginOp(o *comm.Op) {
	if l != nil {
		l.begin(Collective, event{name: o.Kind.String(), shape: collectiveArgs, args: [4]int64{0: int64(o.Seq)}})
	}
}

// endOp closes the innermost collective, which is the one that beginOp opened:
// operations of one Comm do not nest.
func (l *Lane) endOp(o *comm.Op, err error) {
	if l == nil {
		return
	}
	report := op{launches: int64(o.Stats.Launches), bytes: o.Stats.SentBytes, wait: o.Stats.Wait}
	if err != nil {
		report.failure = err.Error()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := len(l.open) - 1; i >= 0; i-- {
		if l.open[i].kind == Collective {
			l.closeTo(i, time.Since(l.start), report)
			return
		}
	}
}
