package ncclworld

import (
	"context"
	"fmt"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/cuda"
	"github.com/weftgo/weft/dtype"
	"github.com/weftgo/weft/internal/gpurank"
	"github.com/weftgo/weft/nccl"
)

// Alloc returns zeroed memory [rows, cols] of the rank's device.
func (c *conn) Alloc(t dtype.DType, rows, cols int) (comm.Buffer, error) {
	if err := c.open("alloc"); err != nil {
		return comm.Buffer{}, err
	}
	addr, err := c.r.zeroed(rows * cols * t.Size())
	if err != nil {
		return comm.Buffer{}, gpurank.Fail("alloc", c.r.index, fmt.Errorf("%v[%d, %d]: %w", t, rows, cols, err))
	}
	return comm.At(c.Device(), addr, t, rows, cols, cols), nil
}

// Free gives memory of Alloc back to the rank. Nothing that was enqueued may still use it.
func (c *conn) Free(b comm.Buffer) error {
	if b.IsZero() {
		return nil
	}
	if err := c.open("free"); err != nil {
		return err
	}
	if err := c.r.pool.Give(b.Addr()); err != nil {
		return comm.Errorf("free", c.r.index, comm.Invalid, "%w", err)
	}
	return nil
}

func (c *conn) open(op string) error {
	if c.w.numOpen.Load() == 0 {
		return comm.Errorf(op, c.r.index, comm.Invalid, "the world is closed")
	}
	return nil
}

// Copy copies rows between two buffers of the device, which it enqueues, or between the host and the device, which it
// waits for: host memory goes through pinned memory in pieces.
func (c *conn) Copy(s comm.Stream, dst, src comm.Buffer) error {
	if err := c.open("copy"); err != nil {
		return err
	}
	return c.r.memory.Copy((*mover)(c), s, dst, src)
}

// mover copies with the device's copy engines.
type mover conn

// Move enqueues a copy.
func (m *mover) Move(st *cuda.Stream, dst, src comm.Buffer) error {
	size := uint64(dst.DType().Size())
	x := nccl.RowCopy{Dst: uint64(dst.Addr()), DstPitch: uint64(dst.Stride()) * size, Src: uint64(src.Addr()), SrcPitch: uint64(src.Stride()) * size,
		Width: uint64(dst.Cols()) * size, Rows: uint64(dst.Rows())}
	if dst.Contiguous() && src.Contiguous() { // one long row has no pitch to be too large
		x.Width, x.Rows = x.Width*x.Rows, 1
		x.DstPitch, x.SrcPitch = x.Width, x.Width
	}
	return nccl.CopyRows(m.r.dev, st, x)
}

// Drain waits for what was moved.
func (m *mover) Drain(st *cuda.Stream) error { return (*conn)(m).wait(context.Background(), st) }

var _ comm.Memory = (*conn)(nil)
