package comm

import (
	"errors"
	"fmt"

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
	start := clock.Read()
	err := c.conn.Do(s, op)
	c.counters.add(op, max(start.Elapsed(), op.Stats.Wait)) // a driver may measure a long wait by another clock
	if c.tracer != nil {
		c.tracer.End(c.worldRank, op, err)
	}
	if err != nil {
		c.failed(err)
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
