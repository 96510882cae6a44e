package engine

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/weftgo/weft/comm"
)

// watch ends all requests when the world dies, and kills the world when a rank is stuck. It returns when the ranks have
// ended.
func (e *Engine) watch(ended <-chan error) {
	defer close(e.finished)
	tick := time.NewTicker(max(e.cfg.StepTimeout/4, time.Millisecond))
	defer tick.Stop()
	dead := e.world.Done()
	for {
		select {
		case err := <-ended:
			if err != nil {
				e.died(err)
			} else if !e.stopping.Load() {
				e.died(errors.New("the ranks left their loops"))
			}
			e.cancel(nil)
			return
		case <-dead:
			dead = nil
			e.died(e.world.Err())
			e.cancel(e.world.Err()) // ranks may sleep, or wait for their leader
		case now := <-tick.C:
			if err := e.stuck(now); err != nil && dead != nil {
				e.world.Abort(err)
			}
		}
	}
}

// stuck names the ranks that have taken longer than StepTimeout for one step.
func (e *Engine) stuck(now time.Time) error {
	var late []string
	peer := comm.NoPeer
	for rank := range e.work {
		w := &e.work[rank]
		since := w.since.Load()
		if since == 0 || now.UnixNano()-since < int64(e.cfg.StepTimeout) {
			continue
		}
		if peer == comm.NoPeer {
			peer = rank
		}
		late = append(late, fmt.Sprintf("rank %d in %v for %v", rank, activity(w.what.Load()), time.Duration(now.UnixNano()-since).Round(time.Millisecond)))
	}
	if late == nil {
		return nil
	}
	return &comm.Error{Op: "engine step", Rank: peer, Peer: comm.NoPeer, Code: comm.Timeout,
		Err: fmt.Errorf("step timeout %v: %s", e.cfg.StepTimeout, strings.Join(late, ", "))}
}
