package ncclworld

import (
	"context"
	"errors"
	"runtime"
	"time"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/cuda"
	"github.com/weftgo/weft/internal/gpurank"
	"github.com/weftgo/weft/nccl"
)

// Wait returns when the stream's work is done. When ctx ends or the world's timeout passes first, the error says so and names
// the ranks that are known to be behind; after the Timeout that follows, NCCL's kernels are aborted. What failed in NCCL
// meanwhile appears here too.
func (c *conn) Wait(ctx context.Context, s comm.Stream) error {
	if err := c.open("wait"); err != nil {
		return err // its streams are gone
	}
	st, err := c.r.streams.Of(s)
	if err == nil {
		err = c.wait(ctx, st)
	}
	if e := (*comm.Error)(nil); err != nil && !errors.As(err, &e) {
		err = gpurank.Fail("wait", c.r.index, err)
	}
	return err
}

// spinTime is how long a wait looks again at once before it sleeps between looks.
const spinTime = 200 * time.Microsecond

func (c *conn) wait(ctx context.Context, st *cuda.Stream) error {
	start, checked := time.Now(), time.Now()
	for pause := 20 * time.Microsecond; ; {
		done, err := st.Query()
		waited := time.Since(start)
		switch {
		case c.stale():
			return c.report("wait")
		case !c.w.alive():
			return c.died("wait")
		case err != nil:
			return c.broken("wait", err)
		case done || time.Since(checked) > time.Millisecond:
			checked = time.Now()
			if err := c.failed(); err != nil {
				return err
			}
		}
		switch {
		case done:
			c.r.streams.Drained(st)
			return nil
		case ctx.Err() != nil:
			return c.ended(ctx, "wait", waited)
		case waited > c.w.cfg.Timeout:
			return c.late("wait", "", waited)
		case waited < spinTime:
			runtime.Gosched()
			continue
		}
		time.Sleep(pause)
		pause = min(pause*5/4, 200*time.Microsecond)
	}
}

// failed asks the rank's communicators what went wrong.
func (c *conn) failed() error {
	for _, x := range c.r.all() {
		raw := x.raw()
		r := raw.State()
		if r == nccl.Success || r == nccl.InProgress {
			continue
		}
		if c.stale() {
			return c.report("wait")
		}
		if !c.w.alive() {
			return c.died("wait")
		}
		if x.stale() || x.raw() != raw {
			continue // another group of this rank is being made anew
		}
		return c.broken("wait", raw.Failure(r, "an operation"))
	}
	return nil
}
