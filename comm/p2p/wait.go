package p2p

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/cuda"
	"github.com/weftgo/weft/internal/gpurank"
)

// Wait returns when the stream's work is done: with the oldest error of the rank's operations that was not reported yet.
// When ctx ends first, the error says so, and after a deadline it names the ranks that had enqueued less. The stream's
// work then goes on until its own deadline, or the abort that follows a Timeout, ends it.
func (c *conn) Wait(ctx context.Context, s comm.Stream) error {
	if err := c.usable("wait"); err != nil {
		return err // its streams are gone
	}
	st, err := c.r.streams.Of(s)
	if err == nil {
		err = c.wait(ctx, st)
	}
	if err == nil {
		return nil // before e, which lives on the heap
	}
	if e := (*comm.Error)(nil); !errors.As(err, &e) {
		err = &comm.Error{Op: "wait", Rank: c.r.index, Peer: comm.NoPeer, Code: gpurank.CodeOf(err), Err: err}
	}
	return err
}

func (c *conn) wait(ctx context.Context, st *cuda.Stream) error {
	if err := c.idle(ctx, st); err != nil {
		return err
	}
	c.r.streams.Drained(st)
	if err := c.pending(); err != nil {
		return err
	}
	if w := c.g.w; !w.alive() {
		return comm.AbortedError("wait", c.r.index, fmt.Errorf("the world is dead: %w", w.cause))
	}
	return nil
}

// spinTime is how long a wait looks again at once before it sleeps between looks.
const spinTime = 200 * time.Microsecond

// patience is how long a wait goes on in a dead world when ctx has ended, for kernels to leave.
const patience = time.Second

// idle polls until the stream is. It asks in short calls, so that no other rank waits for this one inside the driver.
func (c *conn) idle(ctx context.Context, st *cuda.Stream) error {
	start, left := time.Now(), time.Duration(0)
	for pause := 20 * time.Microsecond; ; {
		done, err := st.Query()
		if done || err != nil {
			return err
		}
		if ctx.Err() != nil && c.g.w.alive() {
			return c.ended(ctx, time.Since(start))
		}
		if ctx.Err() != nil { // weft's kernels leave a dead world at once; the caller's may not
			if left == 0 {
				left = time.Since(start) + patience
			} else if time.Since(start) > left {
				return comm.AbortedError("wait", c.r.index, fmt.Errorf("the stream's own work goes on; the world is dead: %w", c.g.w.cause))
			}
		}
		if time.Since(start) < spinTime {
			runtime.Gosched()
			continue
		}
		time.Sleep(pause)
		pause = min(pause*5/4, 200*time.Microsecond)
	}
}

// ended is the error of a host's wait whose ctx ended.
func (c *conn) ended(ctx context.Context, waited time.Duration) error {
	e := &comm.Error{Op: "wait", Rank: c.r.index, Peer: comm.NoPeer, Code: comm.Aborted}
	who := "the stream"
	if missing := c.missing(); missing != 0 {
		e.Peer, who = c.first(missing), c.names(missing)
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		e.Code = comm.Timeout
		c.g.expired.CompareAndSwap(0, c.missing())
	}
	e.Err = fmt.Errorf("waited %v for %s: %w", waited.Round(time.Microsecond), who, context.Cause(ctx))
	if e.Code == comm.Aborted {
		e.Err = fmt.Errorf("waited %v: %w", waited.Round(time.Microsecond), context.Cause(ctx))
		if cause := (*comm.Error)(nil); errors.As(context.Cause(ctx), &cause) {
			if e.Peer = cause.Peer; e.Peer == comm.NoPeer {
				e.Peer = cause.Rank
			}
		}
	}
	return e
}
