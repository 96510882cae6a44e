package ncclworld

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/internal/gpurank"
	"github.com/weftgo/weft/nccl"
	"github.com/weftgo/weft/nccl/internal/recipe"
)

// Do enqueues one operation: one C call that packs, issues a group and unpacks. It waits for other ranks only where NCCL does, on
// the first operations, while it connects. Errors of earlier operations may appear here.
func (c *conn) Do(s comm.Stream, op *comm.Op) error {
	op.Stats = comm.OpStats{}
	raw := c.raw() // before ready: when members disagree meanwhile, this call must not get into the new communicator
	if err := c.ready(op.Label); err != nil {
		return err
	}
	st, err := c.r.streams.Of(s)
	if err == nil {
		err = c.r.streams.Order(st)
	}
	if err != nil {
		return gpurank.Fail(op.Label(), c.r.index, err)
	}
	if err := c.fill(op); err != nil {
		return c.refuse(op, err)
	}
	if op.Kind == comm.Send || op.Kind == comm.Recv {
		err = c.agreeMessage(op)
	} else {
		err = c.agree(op, "")
	}
	if err != nil {
		return c.relabel(op.Label(), err)
	}
	if b := &c.recipe.Batch; len(b.Calls)+len(b.Before) > 0 {
		if r := raw.Begin(st, b); r != nccl.Success {
			if err := c.slow(op, raw, r); err != nil {
				return err
			}
		}
		op.Stats.Launches = 1
	}
	op.Stats.SentBytes = c.recipe.SentBytes(op)
	return nil
}

// fill fills the recipe's batch, with a workspace that is large enough.
func (c *conn) fill(op *comm.Op) error {
	if err := recipe.Possible(op); err != nil {
		return &comm.Error{Op: op.Label(), Rank: c.r.index, Peer: comm.NoPeer, Code: comm.Unavailable, Err: err}
	}
	for {
		stage := c.r.stage
		needed := c.recipe.Fill(op, uint64(stage.Addr), uint64(stage.Size))
		if needed <= uint64(stage.Size) {
			return nil
		}
		// The old stage may be in use by what was enqueued, so it is kept until the world closes.
		b, err := c.r.pool.Take(int(2 * needed))
		if err != nil {
			return gpurank.Fail(op.Label(), c.r.index, fmt.Errorf("a workspace of %d bytes for rows with gaps: %w", 2*needed, err))
		}
		c.r.stage = b
	}
}

// ready reports why no operation can begin: the Conn is closed, the members disagreed, the world is dead.
func (c *conn) ready(label func() string) error {
	switch {
	case c.closed.Load():
		return comm.Errorf(label(), c.r.index, comm.Invalid, "the comm is closed")
	case c.stale():
		return c.report(label())
	case !c.w.alive():
		return c.died(label())
	}
	return nil
}

// relabel names the operation in an error that has none.
func (c *conn) relabel(label string, err error) error {
	if e, ok := err.(*comm.Error); ok && e.Op == "" {
		e.Op = label
	}
	return err
}

// slow goes on with an enqueue that is not done at once: NCCL connects, or its own thread launches.
func (c *conn) slow(op *comm.Op, raw *nccl.Communicator, r nccl.Result) error {
	start := time.Now()
	for pause := 10 * time.Microsecond; ; pause = min(2*pause, time.Millisecond) {
		switch {
		case r == nccl.Success:
			return nil
		case c.stale():
			return c.report(op.Label())
		case !c.w.alive():
			return c.died(op.Label())
		case r != nccl.InProgress:
			return c.broken(op.Label(), raw.Failure(r, op.String()))
		case time.Since(start) > c.w.cfg.Timeout:
			return c.late(op.Label(), "in "+op.String(), time.Since(start))
		}
		time.Sleep(pause)
		r = raw.Advance(&c.recipe.Batch)
	}
}

// broken is the error of a communicator that failed, which ends the world: NCCL can only abort it.
func (c *conn) broken(label string, err error) error {
	e := &comm.Error{Op: label, Rank: c.r.index, Peer: comm.NoPeer, Code: gpurank.CodeOf(err), Err: err}
	if e.Code == comm.Remote {
		e.Peer = c.w.lost()
		return e // comm ends the world
	}
	if r := c.raw().State(); r == nccl.Success && (e.Code == comm.Invalid || e.Code == comm.Unavailable) {
		return e // the library refused the call; a blocking communicator goes on
	}
	c.w.comm.Abort(e)
	return e
}

// died is the error of a call in a dead world. If it died because another rank gave up waiting for the same members, this is a
// Timeout too.
func (c *conn) died(label string) error {
	if late := c.g.late.Load(); late != nil && len(*late) > 0 && !slices.Contains(*late, c.r.index) {
		return c.timeout(label, "", c.w.cfg.Timeout, *late)
	}
	return c.w.deadError(label, c.r.index)
}

// late is the error of a wait that outlasted the world's timeout.
func (c *conn) late(label, what string, waited time.Duration) error {
	missing := c.w.behind(c)
	c.g.late.CompareAndSwap(nil, &missing)
	return c.timeout(label, what, waited, *c.g.late.Load())
}

func (c *conn) timeout(label, what string, waited time.Duration, missing []int) error {
	e := &comm.Error{Op: label, Rank: c.r.index, Peer: comm.NoPeer, Code: comm.Timeout}
	who := fmt.Sprintf("the other ranks of %v", c.g.members)
	if len(missing) > 0 {
		e.Peer, who = missing[0], names(missing)
	}
	if what != "" {
		who += " " + what
	}
	e.Err = fmt.Errorf("waited %v for %s", waited.Round(time.Millisecond), who)
	if len(missing) == 0 && c.g.allLocal() {
		e.Err = fmt.Errorf("%w, which have called as much: do some call the operations of several groups in another order?", e.Err)
	}
	return e
}

// ended is the error of a host's wait whose ctx ended.
func (c *conn) ended(ctx context.Context, label string, waited time.Duration) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return c.late(label, "", waited)
	}
	e := &comm.Error{Op: label, Rank: c.r.index, Peer: comm.NoPeer, Code: comm.Aborted,
		Err: fmt.Errorf("waited %v: %w", waited.Round(time.Microsecond), context.Cause(ctx))}
	if cause := (*comm.Error)(nil); errors.As(context.Cause(ctx), &cause) {
		if e.Peer = cause.Peer; e.Peer == comm.NoPeer {
			e.Peer = cause.Rank
		}
	}
	return e
}
