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
// because the others only wait for them. Ranks that wait may have begun a little earlier than the one they wait for: it gets as long
// again before they are named.
func (e *Engine) stuck(now time.Time) error {
	type lateRank struct {
		rank    int
		took    time.Duration
		what    activity
		waiting bool // in a collective
	}
	var late []lateRank
	computes, soon := false, false
	longest := time.Duration(0)
	for rank := range e.work { // each is looked at once: it may move on meanwhile
		since := e.work[rank].since.Load()
		took := time.Duration(now.UnixNano() - since)
		if since == 0 {
			continue
		}
		if took < e.cfg.StepTimeout {
			soon = soon || !e.inCollective(rank)
			continue
		}
		longest = max(longest, took)
		l := lateRank{rank, took, activity(e.work[rank].what.Load()), e.inCollective(rank)}
		late = append(late, l)
		computes = computes || !l.waiting
	}
	if !computes && soon && longest < 2*e.cfg.StepTimeout {
		return nil
	}
	peer := comm.NoPeer
	var texts []string
	for _, l := range late {
		what := l.what.String()
		if l.waiting {
			if computes {
				continue
			}
			what += ", in a collective"
		}
		if peer == comm.NoPeer {
			peer = l.rank
		}
		texts = append(texts, fmt.Sprintf("rank %d in %s for %v", l.rank, what, l.took.Round(time.Millisecond)))
	}
	if texts == nil {
		return nil
	}
	return &comm.Error{Op: "engine step", Rank: peer, Peer: comm.NoPeer, Code: comm.Timeout,
		Err: fmt.Errorf("step timeout %v: %s", e.cfg.StepTimeout, strings.Join(texts, ", "))}
}

func (e *Engine) inCollective(rank int) bool {
	w, ok := e.models[rank].(Waiter)
	return ok && activity(e.work[rank].what.Load()) == inForward && w.InCollective()
}
