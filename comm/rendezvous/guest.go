package rendezvous

import (
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/weftgo/weft/comm"
)

// guest is the server's side of one client.
type guest struct {
	*link
	member
	name   string
	server *Server

	mu      sync.Mutex // after the table's, never before
	waiting map[uint64]*operation
}

// operation is one that waits.
type operation struct {
	waiter
	timer *time.Timer // nil: waits for ever
}

func (op *operation) stop() {
	if op.timer != nil {
		op.timer.Stop()
	}
}

// serve answers requests until the client leaves (nil) or is lost.
func (g *guest) serve() error {
	l := g.server.table.limits
	limit := requestHead + l.KeyBytes + max(l.ValueBytes, maxText)
	for {
		f, err := g.read(limit)
		if err != nil {
			return err
		}
		switch f.kind {
		case kindPing:
			g.send(func(b []byte) []byte { return appendHead(b, kindPing, f.id, 0) })
		case kindCancel:
			if op := g.take(f.id); op != nil {
				g.server.table.cancel(&op.waiter)
			}
		case kindLeave:
			g.send(func(b []byte) []byte { return appendHead(b, kindLeave, f.id, 0) })
			g.finish()
			return nil
		case kindSet, kindGet, kindAdd, kindGather, kindForget, kindAbort:
			q, err := parseRequest(f.body)
			if err != nil {
				return err
			}
			g.handle(f.kind, f.id, &q)
		default:
			return fmt.Errorf("%w: kind %d", errFrame, f.kind)
		}
	}
}

// handle runs one request.
func (g *guest) handle(k kind, id uint64, q *request) {
	t := g.server.table
	switch k {
	case kindSet:
		g.reply(id, nil, t.set(q.key, q.value))
	case kindForget:
		t.forget(q.key)
		g.reply(id, nil, nil)
	case kindAdd:
		n, err := t.add(q.key, q.number)
		g.reply(id, [][]byte{strconv.AppendInt(nil, n, 10)}, err)
	case kindGet:
		g.wait(id, q, func(w *waiter) error { return t.get(q.key, w) })
	case kindGather:
		g.wait(id, q, func(w *waiter) error { return t.gather(q.key, int(q.rank), int(q.size), q.value, w) })
	case kindAbort:
		g.reply(id, nil, nil)
		if g.agent && q.rank > 0 && int(q.rank) <= g.server.cfg.Size {
			g.server.kill(int(q.rank)-1, errors.New(string(q.value)))
			return
		}
		g.server.kill(g.peer(), fmt.Errorf("%v (%s) failed: %s", g.member, g.name, q.value))
	}
}

// wait starts an operation that may wait, and its clock.
func (g *guest) wait(id uint64, q *request, start func(*waiter) error) {
	op := &operation{}
	op.done = func(values [][]byte) {
		g.take(id)
		g.reply(id, values, nil)
	}
	g.mu.Lock()
	switch most := g.server.table.limits.Waiting; {
	case g.waiting == nil || g.waiting[id] != nil:
		g.mu.Unlock()
		return // the client is gone, or uses one number twice
	case len(g.waiting) >= most:
		g.mu.Unlock()
		g.reply(id, nil, invalid("%d operations of this process wait already", most))
		return
	}
	if q.number > 0 {
		op.timer = time.AfterFunc(time.Duration(q.number), func() {
			if late := g.server.table.cancel(&op.waiter); late != "" && g.take(id) != nil {
				g.reply(id, nil, &comm.Error{Peer: comm.NoPeer, Code: comm.Timeout, Err: errors.New(late)})
			}
		})
	}
	g.waiting[id] = op
	g.mu.Unlock()
	if err := start(&op.waiter); err != nil {
		g.take(id)
		g.reply(id, nil, err)
	}
}

// take ends the bookkeeping of operation id and returns it, nil when it is over.
func (g *guest) take(id uint64) *operation {
	g.mu.Lock()
	defer g.mu.Unlock()
	op := g.waiting[id]
	if op != nil {
		op.stop()
		delete(g.waiting, id)
	}
	return op
}

// drop cancels everything that waits.
func (g *guest) drop() {
	g.mu.Lock()
	waiting := g.waiting
	g.waiting = nil
	g.mu.Unlock()
	for _, op := range waiting {
		op.stop()
		g.server.table.cancel(&op.waiter)
	}
}

// linger lets what is queued reach the client before the connection closes.
func (g *guest) linger() {
	g.finish()
	for {
		if _, err := g.read(g.server.table.limits.ValueBytes + 1<<16); err != nil {
			break
		}
	}
	g.cut()
}

func (g *guest) reply(id uint64, values [][]byte, err error) {
	if err == nil {
		g.send(func(b []byte) []byte { return appendValues(b, id, values) })
		return
	}
	var e *comm.Error
	if !errors.As(err, &e) {
		e = &comm.Error{Peer: comm.NoPeer, Code: comm.Internal, Err: err}
	}
	g.send(func(b []byte) []byte { return appendError(b, kindError, id, e) })
}
