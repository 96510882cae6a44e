package comm

import (
	"context"
	"fmt"
	"math"

	"github.com/weftgo/weft/dtype"
)

// Conn is all that a driver must write: one rank's end of it. Do gets operations that Comm.Do has validated and reports
// Op.Stats; what it cannot do it answers with an Error of code Unavailable. Its errors name ranks of the world, in groups
// made by Split too. One goroutine uses a Conn at a time, except that Abort may come from any. The Op and its slices are the
// caller's and may be used during Do only.
type Conn interface {
	// Device says where this rank's buffers live.
	Device() Device
	// Do runs or enqueues one operation. A wait for peers ends at the world's timeout with an Error that names the peer.
	Do(s Stream, op *Op) error
	// Split is collective: ranks of one color form a group, ordered by key, then by rank. A negative color joins none
	// and gets a nil Conn.
	Split(ctx context.Context, color, key int) (conn Conn, rank, size int, err error)
	// Wait blocks until the stream's work is done; asynchronous errors appear here.
	Wait(ctx context.Context, s Stream) error
	// Abort ends this rank's part and that of all ranks it is connected with, in every group of the world: their waits
	// return Aborted with cause. Only the first call counts. Comm calls it after every Timeout and Remote error.
	Abort(cause error)
	// Close frees the rank's resources. It is collective on a living world and waits for nobody on a dead one.
	Close(ctx context.Context) error
}

// Memory is an optional power of a Conn: memory of its device. The CPU needs none; there Alloc gives Go memory.
type Memory interface {
	Alloc(t dtype.DType, rows, cols int) (Buffer, error)
	Free(Buffer) error
	Copy(s Stream, dst, src Buffer) error
}

// Tracer is told of every operation of a Comm, with the rank in the world. It is called on the rank's goroutine; at End
// op.Stats is filled.
type Tracer interface {
	Begin(rank int, op *Op)
	End(rank int, op *Op, err error)
}

// maxAlloc bounds the bytes of one Alloc, so that sizes do not overflow.
const maxAlloc = math.MaxInt - 8

// Alloc returns zeroed memory [rows, cols] on c's device. The caller frees it with Free.
func Alloc(c *Comm, t dtype.DType, rows, cols int) (Buffer, error) {
	if rows < 0 || cols <= 0 || !t.Valid() || rows > maxAlloc/t.Size()/cols {
		return Buffer{}, Errorf("alloc", c.worldRank, Invalid, "%v[%d, %d]", t, rows, cols)
	}
	if m, ok := c.conn.(Memory); ok {
		return m.Alloc(t, rows, cols)
	}
	if c.Device().Kind != CPU {
		return Buffer{}, Errorf("alloc", c.worldRank, Unavailable, "driver %T has no memory of %v", c.conn, c.Device())
	}
	// 8-byte elements so that every type is aligned.
	raw := make([]int64, (rows*cols*t.Size()+7)/8)
	b := Of(raw, 1)
	b.dtype, b.rows, b.cols, b.stride = t, rows, cols, cols
	return b, nil
}

// Free returns memory of Alloc. On the CPU the garbage collector does it.
func Free(c *Comm, b Buffer) error {
	if m, ok := c.conn.(Memory); ok {
		return m.Free(b)
	}
	return nil
}

// Copy copies src to dst, which must have the same shape and type, in stream order. Either may be on the host or on
// c's device.
func Copy(c *Comm, s Stream, dst, src Buffer) error {
	if err := sameShape(dst, src); err != nil {
		return &Error{Op: "copy", Rank: c.worldRank, Peer: NoPeer, Code: Invalid, Err: err}
	}
	if m, ok := c.conn.(Memory); ok {
		return m.Copy(s, dst, src)
	}
	if dst.device.Kind != CPU || src.device.Kind != CPU {
		return Errorf("copy", c.worldRank, Unavailable, "%v to %v needs a driver with memory of its own", src, dst)
	}
	for i := range dst.rows {
		copy(dst.RowBytes(i), src.RowBytes(i))
	}
	return nil
}

func sameShape(dst, src Buffer) error {
	if err := dst.Validate(); err != nil {
		return fmt.Errorf("dst: %w", err)
	}
	if err := src.Validate(); err != nil {
		return fmt.Errorf("src: %w", err)
	}
	if dst.rows != src.rows || dst.cols != src.cols || dst.dtype != src.dtype {
		return fmt.Errorf("dst %v and src %v differ in shape or type", dst, src)
	}
	return nil
}
