package comm

import (
	"errors"
	"fmt"
	"time"

	"github.com/weftgo/weft/internal/clock"
)

// Do runs one operation: all of the methods above are this. It validates op, numbers it, tells the tracer, hands it to
// the driver and counts what the driver reports. An invalid call fails at once and on this rank only; ranks that are in
// the operation learn of it when the world is aborted (World.Run does that) or at their timeout.
func (c *Comm) Do(s Stream, op *Op) error {
	c.seq++
	op.Seq = c.seq
	op.Stats = OpStats{}
	if w := c.world.Load(); w != nil && w.dead.Load() {
		return c.dead(op.Label(), w.Err())
	}
	if err := c.check(op); err != nil {
		return &Error{Op: op.Label(), Rank: c.worldRank, Peer: NoPeer, Code: Invalid, Err: err}
	}
	if c.tracer != nil {
		c.tracer.Begin(c.worldRank, op)
	}
	err := c.timed(s, op)
	if c.tracer != nil {
		c.tracer.End(c.worldRank, op, err)
	}
	if err != nil {
		c.failed(err)
	}
	return err
}

// Two looks at the clock are a tenth of the shortest calls. So of calls of one shape that take less than shortCall, apart from
// waiting, one in sampled is timed, and the others count as much.
const (
	shortCall = time.Microsecond
	sampled   = 16
)

// timed hands op to the driver and counts it.
func (c *Comm) timed(s Stream, op *Op) error {
	if op.Shape != 0 {
		if k := &c.shapes[op.Kind]; k.skip > 0 {
			k.skip--
			err := c.conn.Do(s, op)
			c.counters.add(op, k.took+op.Stats.Wait)
			return err
		}
	}
	start := clock.Read()
	err := c.conn.Do(s, op)
	d := max(start.Elapsed(), op.Stats.Wait) // a driver may measure a long wait by another clock
	c.counters.add(op, d)
	if op.Shape != 0 {
		if d -= op.Stats.Wait; d < shortCall {
			k := &c.shapes[op.Kind]
			k.took, k.skip = d, sampled-1
		}
	}
	return err
}

// dead is the error of every call on a dead world.
func (c *Comm) dead(op string, cause error) error {
	return AbortedError(op, c.worldRank, fmt.Errorf("the world is dead: %w", cause))
}

// failed kills the world after an error that leaves ranks out of step.
func (c *Comm) failed(err error) {
	if errors.Is(err, Timeout) || errors.Is(err, Remote) {
		c.Abort(err)
	}
}
