package p2p

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/weftgo/weft/comm"
)

// tellTime is how long a dying world tries to tell the other processes.
const tellTime = 2 * time.Second

// death is why a world died, as one process tells the others.
type death struct {
	Op         string
	Rank, Peer int
	Code       comm.Code
	Text       string
}

// watch lets a world die here when it dies in another process, or when the store loses a process, and tells the others when
// it dies here.
func (w *world) watch() {
	s := w.span
	ctx, stop := context.WithCancel(context.Background())
	s.stop, s.done = stop, make(chan struct{})
	key := s.job.Name + "/dead"
	go func() {
		defer close(s.done)
		dying, cancel := context.WithCancel(ctx)
		defer cancel()
		got := make(chan error, 1)
		go func() {
			b, err := s.job.Store.Get(dying, key)
			for errors.Is(err, comm.Timeout) && dying.Err() == nil { // a store may bound its waits
				b, err = s.job.Store.Get(dying, key)
			}
			if err == nil {
				err = parseDeath(b)
			}
			got <- w.blame(err)
		}()
		select {
		case err := <-got:
			if ctx.Err() == nil {
				w.kill(err)
				if open := s.open.Load(); open != nil {
					open.Abort(err)
				}
			}
		case <-w.dead:
			cancel()
			<-got
			limit, done := context.WithTimeout(context.Background(), tellTime)
			defer done()
			_ = s.job.Store.Set(limit, key, encode(newDeath(w.cause, w.cfg.FirstRank))) // the others have their deadlines too
		}
	}()
}

// blame turns the process that a store's error names into its first rank.
func (w *world) blame(err error) error {
	e := (*comm.Error)(nil)
	if !errors.As(err, &e) || e.Code != comm.Remote {
		return err
	}
	lost := comm.Error{Op: "p2p", Rank: w.cfg.FirstRank, Peer: comm.NoPeer, Code: comm.Remote, Err: e.Err}
	for rank, h := range w.span.hellos {
		if e.Peer != comm.NoPeer && h.Process == e.Peer {
			lost.Peer = rank
			break
		}
	}
	return &lost
}

func newDeath(cause error, rank int) death {
	d := death{Op: "p2p", Rank: rank, Peer: comm.NoPeer, Code: comm.Aborted, Text: cause.Error()}
	if e := (*comm.Error)(nil); errors.As(cause, &e) {
		d.Op, d.Rank, d.Peer, d.Code = e.Op, e.Rank, e.Peer, e.Code
		if e.Err != nil {
			d.Text = e.Err.Error()
		}
	}
	return d
}

func parseDeath(b []byte) error {
	var d death
	if err := json.Unmarshal(b, &d); err != nil {
		return comm.Errorf("p2p", 0, comm.Remote, "another process ended the world with %q: %w", b, err)
	}
	return &comm.Error{Op: d.Op, Rank: d.Rank, Peer: d.Peer, Code: d.Code, Err: fmt.Errorf("%s (in another process)", d.Text)}
}

// call is the text of a member's call, for messages. Every process of a foreign group finds the same two calls that disagree: who
// knows one tells the others.
func (g *group) call(member int64, id uint64) string {
	_, text := g.conns[member].log.describe(uint32(id))
	if !g.foreign() {
		return text
	}
	ctx, cancel := context.WithTimeout(context.Background(), tellTime)
	defer cancel()
	key := fmt.Sprintf("%s/call/%d/%d", g.key, member, id)
	if !g.members[member].away {
		_ = g.w.cfg.Store.Set(ctx, key, []byte(text))
		return text
	}
	if told, err := g.w.cfg.Store.Get(ctx, key); err == nil {
		return string(told)
	}
	return text
}

// settle waits a moment for the reason when another process's kernel has ended the world.
func (w *world) settle() {
	t := time.NewTimer(time.Second)
	defer t.Stop()
	select {
	case <-w.dead:
	case <-t.C:
	}
}
