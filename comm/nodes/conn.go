package nodes

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/cuda"
	"github.com/weftgo/weft/dtype"
)

// conn is one rank's end.
type conn struct {
	s       *shared
	in, out *comm.Comm
	node    int // this rank's, of nodes
	nodes   int
	local   int // this rank in its node of ranks
	ranks   int
	rank    int
	device  *cuda.Device // nil on the CPU
	stream  *cuda.Stream
	scratch []comm.Buffer // kept until Close
	call    call          // the operation under way, with what its steps need, so that none allocates
	closed  atomic.Bool
	levels  [2]*comm.Comm // inside, between; made when asked for
}

func (c *conn) world() *comm.World { return c.s.world }

// Device says where the rank's buffers live.
func (c *conn) Device() comm.Device { return c.in.Device() }

// on is the stream that both drivers use.
func (c *conn) on(s comm.Stream) comm.Stream {
	if s.Handle == 0 && c.stream != nil {
		s.Handle = c.stream.Handle()
	}
	return s
}

// Abort ends all worlds below.
func (c *conn) Abort(cause error) {
	for _, below := range []*comm.Comm{c.in, c.out} {
		below.Abort(cause)
	}
}

// settle makes an error of a world below this world's. What ended because this world had died says so, and so does a deadline
// that passed because the rank it names was itself waiting.
func (c *conn) settle(below *comm.Comm, op string, err error) error {
	if err == nil {
		return nil
	}
	out := c.translate(below, op, err)
	if errors.Is(err, comm.Aborted) {
		if cause := c.world().Err(); cause != nil {
			return comm.AbortedError(op, c.rank, fmt.Errorf("the world is dead: %w", cause))
		}
	}
	if errors.Is(err, comm.Timeout) {
		e, own := (*comm.Error)(nil), (*comm.Error)(nil)
		if cause := c.s.judged(); errors.As(cause, &e) && errors.As(out, &own) && e.Peer != own.Peer {
			return comm.AbortedError(op, c.rank, fmt.Errorf("the world is dead: %w", cause))
		}
	}
	return out
}

// Wait waits for the stream in both drivers.
func (c *conn) Wait(ctx context.Context, s comm.Stream) error {
	s = c.on(s)
	for _, below := range []*comm.Comm{c.out, c.in} {
		if err := c.settle(below, "wait", below.Wait(ctx, s)); err != nil {
			return err
		}
	}
	return nil
}

// Split works where one of the two levels is trivial.
func (c *conn) Split(ctx context.Context, color, key int) (comm.Conn, int, int, error) {
	below := c.in
	switch {
	case c.nodes == 1:
	case c.ranks == 1:
		below = c.out
	default:
		return nil, 0, 0, comm.Errorf("split", c.rank, comm.Unavailable, "%d nodes of %d ranks cannot be split; split the worlds inside and between them", c.nodes, c.ranks)
	}
	conn, rank, size, err := below.Conn().Split(ctx, color, key)
	return conn, rank, size, c.settle(below, "split", err)
}

// Alloc returns memory of the driver inside.
func (c *conn) Alloc(t dtype.DType, rows, cols int) (comm.Buffer, error) {
	b, err := comm.Alloc(c.in, t, rows, cols)
	return b, c.settle(c.in, "alloc", err)
}

// Free gives memory of Alloc back.
func (c *conn) Free(b comm.Buffer) error { return c.settle(c.in, "free", comm.Free(c.in, b)) }

// Copy copies with the driver inside.
func (c *conn) Copy(s comm.Stream, dst, src comm.Buffer) error {
	return c.settle(c.in, "copy", comm.Copy(c.in, c.on(s), dst, src))
}

// temporary returns scratch memory of at least rows x cols elements. An operation asks once; the next one may overwrite it,
// for a rank's operations run in order.
func (c *conn) temporary(t dtype.DType, rows, cols int) (comm.Buffer, error) {
	for _, b := range c.scratch {
		if b.DType() == t && b.Rows() >= rows*cols {
			return reshape(b.Slice(0, rows*cols), rows, cols), nil
		}
	}
	b, err := comm.Alloc(c.in, t, max(1, 2*rows*cols), 1)
	if err != nil {
		return comm.Buffer{}, c.settle(c.in, "workspace", err)
	}
	c.scratch = append(c.scratch, b)
	return reshape(b.Slice(0, rows*cols), rows, cols), nil
}

// reshape views the elements of a buffer without gaps as [rows, cols].
func reshape(b comm.Buffer, rows, cols int) comm.Buffer {
	if b.Device().Kind == comm.CPU {
		return comm.OfBytes(b.Bytes(), b.DType(), rows, cols)
	}
	return comm.At(b.Device(), b.Addr(), b.DType(), rows, cols, cols)
}

var _ comm.Memory = (*conn)(nil)
