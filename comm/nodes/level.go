package nodes

import (
	"context"
	"errors"
	"time"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/dtype"
	"github.com/weftgo/weft/internal/kernels"
)

// Levels returns the two groups that a rank of a world of nodes belongs to: the ranks of its node, in which it has its number
// in the node, and the ranks of its column, in which it has the node's number. Their errors name ranks of the whole world. They
// are the world's, which closes them. ok is false for a Comm that Open has not made, such as a group made by Split.
//
// The rank's goroutine calls it, and gets the same groups each time.
func Levels(c *comm.Comm) (inside, between *comm.Comm, ok bool) {
	x, ok := c.Conn().(*conn)
	if !ok {
		return nil, nil, false
	}
	if x.levels[0] == nil {
		x.levels[0] = c.Group(x.level(x.in), x.local, x.ranks)
		x.levels[1] = c.Group(x.level(x.out), x.node, x.nodes)
	}
	return x.levels[0], x.levels[1], true
}

// level is a rank's end of one of the worlds below, as a group of the whole.
type level struct {
	c     *conn
	below *comm.Comm
	op    comm.Op
}

func (c *conn) level(below *comm.Comm) comm.Conn {
	l := &level{c: c, below: below}
	if seater, ok := below.Conn().(kernels.Seater); ok {
		return &seated{l, seater}
	}
	return l
}

// seated is the level of a driver that lets other packages launch kernels.
type seated struct {
	*level
	kernels.Seater
}

// Seat is the driver's, on the stream that both levels use.
func (l *seated) Seat(s comm.Stream, a *kernels.Args, n kernels.Note) (kernels.Seat, error) {
	seat, err := l.Seater.Seat(l.c.on(s), a, n)
	return seat, l.c.settle(l.below, n.Label, err)
}

// Device says where the rank's buffers live.
func (l *level) Device() comm.Device { return l.c.Device() }

// Do runs an operation in the world below.
func (l *level) Do(s comm.Stream, op *comm.Op) error {
	if l.c.closed.Load() {
		return comm.Errorf(op.Label(), l.c.rank, comm.Invalid, "the comm is closed")
	}
	l.op = *op
	err := l.below.Do(l.c.on(s), &l.op)
	op.Stats = l.op.Stats
	if err == nil {
		return nil
	}
	return l.c.settle(l.below, op.Label(), err)
}

// Split splits the world below.
func (l *level) Split(ctx context.Context, color, key int) (comm.Conn, int, int, error) {
	conn, rank, size, err := l.below.Conn().Split(ctx, color, key)
	return conn, rank, size, l.c.settle(l.below, "split", err)
}

// Wait waits for the stream in the world below.
func (l *level) Wait(ctx context.Context, s comm.Stream) error {
	return l.c.settle(l.below, "wait", l.below.Wait(ctx, l.c.on(s)))
}

// Abort ends all worlds below.
func (l *level) Abort(cause error) { l.c.Abort(cause) }

// Close does nothing: the world closes what is below.
func (l *level) Close(context.Context) error { return nil }

// Alloc returns memory of the driver inside.
func (l *level) Alloc(t dtype.DType, rows, cols int) (comm.Buffer, error) {
	return l.c.Alloc(t, rows, cols)
}

// Free gives memory of Alloc back.
func (l *level) Free(b comm.Buffer) error { return l.c.Free(b) }

// Copy copies with the driver inside.
func (l *level) Copy(s comm.Stream, dst, src comm.Buffer) error { return l.c.Copy(s, dst, src) }

var _ comm.Memory = (*level)(nil)

// grace is how long a deadline that passed in one world below waits for those of the others. A rank that a late one keeps
// waiting between nodes keeps others waiting inside: they all see the deadline pass within moments, and only the first of the
// chain knows who is late.
const grace = 50 * time.Millisecond

// died ends the world because one below died. key names that one.
func (s *shared) died(key place, err error) {
	s.mu.Lock()
	if s.deaths == nil {
		s.deaths = map[place]error{}
	}
	s.deaths[key] = err
	s.mu.Unlock()
	if errors.Is(err, comm.Timeout) {
		select {
		case <-s.world.Done():
			return
		case <-s.stop:
		case <-time.After(grace):
		}
	}
	s.world.Abort(s.culprit(key))
}

// place is a world below: of a node, or of a column.
type place struct {
	between bool
	number  int
}

// culprit follows the blame from the death of one world below: the rank it names may have waited in its other one.
func (s *shared) culprit(key place) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	ranks := s.conns[0].ranks
	err := s.deaths[key]
	for range s.deaths {
		e := (*comm.Error)(nil)
		if !errors.As(err, &e) || e.Code != comm.Timeout || e.Peer == comm.NoPeer {
			return err
		}
		if key = (place{!key.between, e.Peer % ranks}); !key.between {
			key.number = e.Peer / ranks
		}
		next := (*comm.Error)(nil)
		if !errors.As(s.deaths[key], &next) || next.Code != comm.Timeout || next.Peer == e.Peer {
			return err
		}
		err = next
	}
	return err
}

// judged waits, after a deadline passed in a world below, until the whole world knows whom to blame.
func (s *shared) judged() error {
	if s.world == nil {
		return nil
	}
	select {
	case <-s.world.Done():
	case <-time.After(4 * grace):
	}
	return s.world.Err()
}
