package p2p

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/internal/lastwords"
)

// tellTime is how long a dying world waits for the text of another process's call.
const tellTime = 2 * time.Second

// watch lets a world die here when it dies in another process, or when the store loses a process, and tells the others when
// it dies here.
func (w *world) watch() {
	s := w.span
	s.closing = make(chan struct{})
	s.line = lastwords.Listen(s.job.Store, s.job.Name+"/dead", func(err error, fromStore bool) {
		if fromStore {
			err = w.blame(err)
		}
		w.kill(err)
		if open := s.open.Load(); open != nil {
			open.Abort(err)
		}
	})
	s.work.Go(func() {
		select {
		case <-w.dead:
		case <-s.closing:
		}
		if !w.alive() {
			s.line.Tell(w.cause, w.cfg.FirstRank)
		}
	})
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
