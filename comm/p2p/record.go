package p2p

import (
	"errors"
	"fmt"
	"math/bits"
	"strings"
	"sync/atomic"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/internal/kernels"
)

// take returns the oldest record that was not read yet. Kernels write Seq last.
func (r *rank) take() (kernels.Record, bool) {
	slot := &r.records[r.next%kernels.NumRecords]
	seq := atomic.LoadUint64(&slot.Seq)
	if seq < r.next {
		return kernels.Record{}, false
	}
	r.next = seq + 1
	return *slot, true
}

// timeout returns the record of the wait that this rank's kernels gave up first. Any goroutine may ask once the abort
// word of the rank has been seen.
func (r *rank) timeout() (rec kernels.Record, found bool) {
	if r.records == nil { // it is in another process
		return rec, false
	}
	for i := range r.records {
		x := &r.records[i]
		if atomic.LoadUint64(&x.Seq) != 0 && x.Why == kernels.Timeout {
			return *x, true
		}
	}
	return rec, false
}

// pending is the error of the oldest record, nil when there is none.
func (c *conn) pending() error {
	rec, ok := c.r.take()
	if !ok {
		return nil
	}
	if g := c.r.groupOf(rec.Group); g != nil {
		return g.explain(rec)
	}
	return c.explain(rec)
}

// explain makes a record an error. The record is of a launch of c.
func (c *conn) explain(rec kernels.Record) error {
	label, text := c.log.describe(uint32(rec.Call))
	e := &comm.Error{Op: label, Rank: c.r.index, Peer: comm.NoPeer, Code: comm.Invalid}
	a, b := c.worldRank(rec.A), c.worldRank(rec.B)
	switch rec.Why {
	case kernels.Timeout:
		return c.timedOut(label, text, rec.Missing, rec)
	case kernels.Aborted:
		return c.aborted(label, text, rec)
	case kernels.Closed:
		e.Peer = a
		e.Err = fmt.Errorf("%s closed", c.names(rec.Missing))
		return e
	case kernels.Disagree:
		e.Err = fmt.Errorf("ranks disagree: rank %d calls %v, rank %d calls %v", a, c.g.call(rec.A, rec.EpochSeen), b, c.g.call(rec.B, rec.OtherCall))
	case kernels.OwnRange:
		e.Err = fmt.Errorf("rank %d: own count %d is not in [0, max %d]", a, rec.N, rec.Limit)
	case kernels.SendRange:
		e.Err = fmt.Errorf("rank %d: count %d for rank %d is not in [0, max %d]", a, rec.N, b, rec.Limit)
		b = a
	case kernels.Expected:
		e.Err = fmt.Errorf("rank %d sends %d rows to rank %d, which expects %d", a, rec.N, b, rec.Limit)
	case kernels.Takes:
		e.Err = fmt.Errorf("rank %d sends %d rows to rank %d, which takes at most %d", a, rec.N, b, rec.Limit)
	case kernels.SrcOwn:
		e.Err = fmt.Errorf("rank %d: own count %d exceeds the %d rows of src", a, rec.N, rec.Limit)
	case kernels.SrcSum:
		e.Err = fmt.Errorf("rank %d: src has %d rows, the counts of all ranks need %d", a, rec.Limit, rec.N)
	case kernels.DstOwn:
		e.Err = fmt.Errorf("rank %d: dst has %d rows, own count is %d", a, rec.Limit, rec.N)
	case kernels.SrcSend:
		e.Err = fmt.Errorf("rank %d: src has %d rows, the counts send %d", a, rec.Limit, rec.N)
	case kernels.Refused, kernels.Overflows, kernels.BadTokens:
		text, _ := rec.Exchange(a)
		e.Err = errors.New(text)
	default:
		e.Code, e.Err = comm.Internal, fmt.Errorf("a kernel of %v left the unknown record %+v", text, rec)
	}
	if e.Peer = a; a == c.r.index {
		e.Peer = b
	}
	if e.Peer == c.r.index {
		e.Peer = comm.NoPeer
	}
	return e
}

func (c *conn) worldRank(member int64) int {
	if member < 0 || member >= int64(len(c.g.members)) {
		return comm.NoPeer
	}
	return c.g.members[member].index
}

// timedOut is the error of a wait for members that did not come.
func (c *conn) timedOut(label, text string, missing uint64, rec kernels.Record) error {
	return &comm.Error{Op: label, Rank: c.r.index, Peer: c.first(missing), Code: comm.Timeout,
		Err: fmt.Errorf("waited %v for %s in %s (epoch %d, wanted %d)", c.g.w.cfg.Timeout, c.names(missing), text,
			rec.EpochSeen, rec.EpochWanted)}
}

// aborted is the error of a wait that ended because the world died. When it died because another rank gave up waiting for
// the same members, this is a Timeout too.
func (c *conn) aborted(label, text string, rec kernels.Record) error {
	w := c.g.w
	if rec.By > 0 && rec.By <= uint64(len(w.ranks)) {
		by := w.ranks[rec.By-1]
		if first, ok := by.timeout(); ok {
			if first.Group == c.g.id && first.Missing>>c.rank&1 == 0 {
				return c.timedOut(label, text, first.Missing, first)
			}
			if g := by.groupOf(first.Group); g != nil {
				return comm.AbortedError(label, c.r.index, g.explain(first))
			}
		}
		if by.away {
			w.settle()
		}
	}
	if set := c.g.expired.Load(); set != 0 && set>>c.rank&1 == 0 {
		return c.timedOut(label, text, set, rec)
	}
	select {
	case <-w.dead:
		return comm.AbortedError(label, c.r.index, fmt.Errorf("the world is dead: %w", w.cause))
	default:
		return comm.AbortedError(label, c.r.index, fmt.Errorf("another rank raised the abort word (%d)", rec.By))
	}
}

// first returns the world rank of the first member in the set.
func (c *conn) first(set uint64) int {
	if set == 0 {
		return comm.NoPeer
	}
	return c.worldRank(int64(bits.TrailingZeros64(set)))
}

// names lists the world ranks of a set, such as "rank 3" or "ranks 3, 5".
func (c *conn) names(set uint64) string {
	list := c.g.worldRanks(set)
	var b strings.Builder
	for i, r := range list {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprint(&b, r)
	}
	if len(list) == 1 {
		return "rank " + b.String()
	}
	return "ranks " + b.String()
}
