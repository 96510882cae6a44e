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

// stuck names the ranks that have taken longer than StepTimeout for one step: those that are not in a collective, if it is known,
// because the others only wait for them.
func (e *Engine) stuck(now time.Time) error {
	var late []int
	computes := false
	for rank := range e.work {
		w := &e.work[rank]
		since := w.since.Load()
		if since == 0 || now.UnixNano()-since < int64(e.cfg.StepTimeout) {
			continue
		}
		late = append(late, rank)
		computes = computes || !e.inCollective(rank)
	}
	if late == nil {
		return nil
	}
	peer := comm.NoPeer
	var texts []string
	for _, rank := range late {
		w := &e.work[rank]
		what := activity(w.what.Load()).String()
		if e.inCollective(rank) {
			if computes {
				continue
			}
			what += ", in a collective"
		}
		if peer == comm.NoPeer {
			peer = rank
		}
		texts = append(texts, fmt.Sprintf("rank %d in %s for %v", rank, what, time.Duration(now.UnixNano()-w.since.Load()).Round(time.Millisecond)))
	}
	if texts == nil {
		return nil // it has moved on meanwhile
	}
	return &comm.Error{Op: "engine step", Rank: peer, Peer: comm.NoPeer, Code: comm.Timeout,
		Err: fmt.Errorf("step timeout %v: %s", e.cfg.StepTimeout, strings.Join(texts, ", "))}
}

func (e *Engine) inCollective(rank int) bool {
	w, ok := e.models[rank].(Waiter)
	return ok && activity(e.work[rank].what.Load()) == inForward && w.InCollective()
}
