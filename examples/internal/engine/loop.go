package engine

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/comm/lockstep"
	"github.com/weftgo/weft/trace"
)

// rank runs the steps of one rank until all ranks agree to stop.
func (e *Engine) rank(ctx context.Context, c *comm.Comm) error {
	rank, tp := c.Rank(), c.Rank()%e.cfg.Layout.TP
	r, work := e.replicas[rank/e.cfg.Layout.TP], &e.work[rank]
	ls, err := lockstep.New(c, lockstep.Config{TP: e.cfg.Layout.TP})
	if err != nil {
		return err
	}
	defer ls.Close()
	lane := e.cfg.Tracer.Rank(rank)
	for {
		var rec lockstep.Record
		var st *step
		if tp == 0 {
			// The generation comes first: whoever adds a request after the scheduler looked rings after this.
			rec.Generation = e.bell.Generation()
			rec.Stop = e.stopping.Load()
			work.begin(inScheduler)
			st = r.schedule()
			work.end()
		} else if st, err = r.await(ctx, tp); err != nil {
			return err
		}
		rec.Tokens, rec.Hash = st.batch.NumTokens(), st.batch.Hash()
		wait, begun := lane.Begin(trace.Wait, "lockstep"), time.Now()
		agreed, err := ls.Agree(ctx, rec)
		wait.End()
		if err != nil {
			return err
		}
		if tp == 0 {
			r.synced(time.Since(begun))
		}
		if rank == 0 {
			e.note(&agreed)
		}
		switch agreed.Decision {
		case lockstep.Stop:
			return nil
		case lockstep.Sleep:
			err = e.bell.Wait(ctx, agreed.Generation)
		case lockstep.Run:
			err = e.run(r, c, st, work, lane)
		}
		if err != nil {
			return err
		}
	}
}

// run is one step of one rank.
func (e *Engine) run(r *replica, c *comm.Comm, st *step, work *progress, lane *trace.Lane) error {
	leader := c.Rank()%e.cfg.Layout.TP == 0
	dummy := len(st.batch.Seqs) == 0
	work.begin(inForward)
	defer work.end()
	var s trace.Span
	if dummy {
		s = lane.BeginDummyStep()
	} else {
		s = lane.BeginStep(st.batch.Count())
	}
	logits, err := e.models[c.Rank()].Forward(comm.Stream{}, &st.batch)
	s.End()
	if err != nil {
		return fmt.Errorf("engine: rank %d: %s: %w", c.Rank(), st.batch.Name(), err)
	}
	switch {
	case !leader:
		return nil
	case dummy:
		r.skip()
		return nil
	}
	work.begin(inSampling)
	s = lane.Begin(trace.Compute, "sample")
	err = r.complete(st, logits)
	s.End()
	return err
}

// activity is what a rank does that others wait for.
type activity uint32

const (
	waiting activity = iota
	inScheduler
	inForward
	inSampling
)

func (a activity) String() string {
	return [...]string{"waiting", "scheduling", "forward", "sampling"}[a]
}

// progress is what one rank is doing, for the watchdog.
type progress struct {
	what  atomic.Uint32
	since atomic.Int64 // of the epoch, in ns; 0 while the rank waits for others
	_     [48]byte     // ranks write their own cache line
}

func (p *progress) begin(what activity) {
	p.what.Store(uint32(what))
	p.since.Store(time.Now().UnixNano())
}

func (p *progress) end() { p.since.Store(0) }
