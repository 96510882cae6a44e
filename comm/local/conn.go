package local

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weftgo/weft/comm"
)

// group is the ranks that one Split, or Open, put together.
type group struct {
	members []int // world rank of each
	timeout time.Duration
	life    *life
	all     *meeting

	mu    sync.Mutex
	pairs [][]*meeting // [from][to], made when first used; seat 0 is the sender's
}

func newGroup(members []int, timeout time.Duration, l *life) *group {
	return &group{members: members, timeout: timeout, life: l, all: newMeeting(members, timeout, l)}
}

// pair returns the meeting of the messages between two ranks of the group in one direction.
func (g *group) pair(from, to int) *meeting {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.pairs == nil {
		g.pairs = make([][]*meeting, len(g.members))
	}
	if g.pairs[from] == nil {
		g.pairs[from] = make([]*meeting, len(g.members))
	}
	m := g.pairs[from][to]
	if m == nil {
		m = newMeeting([]int{g.members[from], g.members[to]}, g.timeout, g.life)
		for seat, rank := range []int{from, to} {
			if g.all.closed.Load()>>rank&1 != 0 {
				m.close(seat)
			}
		}
		g.pairs[from][to] = m
	}
	return m
}

// close tells everyone who waits for the rank, now or later, that it will not come.
func (g *group) close(rank int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.all.close(rank)
	for from, row := range g.pairs {
		for to, m := range row {
			if m != nil && from == rank {
				m.close(0)
			}
			if m != nil && to == rank {
				m.close(1)
			}
		}
	}
}

// conn is one rank's end.
type conn struct {
	g      *group
	rank   int // in the group
	closed atomic.Bool
	kinds  [comm.NumOpKinds]prepared // the last call of each kind
}

// Device returns cpu:0.
func (c *conn) Device() comm.Device { return comm.Device{} }

// Wait returns at once: every operation is complete when its call returns.
func (c *conn) Wait(context.Context, comm.Stream) error { return nil }

// Abort ends the whole world.
func (c *conn) Abort(cause error) { c.g.life.kill(cause) }

// Close makes this rank leave the group. It waits for nobody: ranks that still wait for this one get Invalid, naming it.
func (c *conn) Close(context.Context) error {
	if !c.closed.Swap(true) {
		c.g.close(c.rank)
	}
	return nil
}

// Do runs one operation.
func (c *conn) Do(_ comm.Stream, op *comm.Op) error {
	op.Stats = comm.OpStats{Launches: 1}
	m, pos := c.g.all, c.rank
	switch op.Kind {
	case comm.Send:
		m, pos = c.g.pair(c.rank, op.Peer), 0
	case comm.Recv:
		m, pos = c.g.pair(op.Peer, c.rank), 1
	}
	if c.closed.Load() {
		return comm.Errorf(op.Label(), m.seats[pos].rank, comm.Invalid, "the comm is closed")
	}
	if op.Shape != 0 {
		return m.quick(&c.kinds[op.Kind], pos, op)
	}
	s := &m.seats[pos]
	call := &s.calls[s.turn]
	if err := call.publish(op); err != nil {
		return &comm.Error{Op: op.Label(), Rank: s.rank, Peer: comm.NoPeer, Code: comm.Invalid, Err: err}
	}
	err := m.run(context.Background(), pos, call, &op.Stats)
	call.forget()
	return err
}
