package p2p

import (
	"context"
	"fmt"
	"unsafe"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/cuda"
	"github.com/weftgo/weft/dtype"
	"github.com/weftgo/weft/internal/gpurank"
	"github.com/weftgo/weft/internal/kernels"
)

// Alloc returns zeroed memory [rows, cols] of the rank's device. Peers may address it.
func (c *conn) Alloc(t dtype.DType, rows, cols int) (comm.Buffer, error) {
	if err := c.usable("alloc"); err != nil {
		return comm.Buffer{}, err
	}
	addr, err := c.r.zeroed(max(1, rows*cols*t.Size()))
	if err != nil {
		return comm.Buffer{}, gpurank.Fail("alloc", c.r.index, fmt.Errorf("%v[%d, %d]: %w", t, rows, cols, err))
	}
	return comm.At(c.Device(), addr, t, rows, cols, cols), nil
}

// Free gives memory of Alloc back to the rank's arena. Nothing that was enqueued may still use it.
func (c *conn) Free(b comm.Buffer) error {
	if b.IsZero() {
		return nil
	}
	if err := c.r.arena.free(b.Addr()); err != nil {
		return gpurank.Fail("free", c.r.index, err)
	}
	return nil
}

func (c *conn) usable(op string) error {
	if c.g.w.numOpen.Load() == 0 || c.r.lost.Load() {
		return comm.Errorf(op, c.r.index, comm.Invalid, "the world is closed")
	}
	return nil
}

// Copy copies rows between two buffers of the device, which it enqueues, or between the host and the device, which it
// waits for: host memory goes through pinned memory in pieces.
func (c *conn) Copy(s comm.Stream, dst, src comm.Buffer) error {
	if err := c.usable("copy"); err != nil {
		return err
	}
	return c.r.memory.Copy((*mover)(c), s, dst, src)
}

// mover copies with the driver's own kernel.
type mover conn

// Move enqueues a copy. It fills the rank's one set of arguments, which a launch copies, so it allocates nothing.
func (m *mover) Move(st *cuda.Stream, dst, src comm.Buffer) error {
	size := int64(dst.DType().Size())
	*m.r.copyArgs = kernels.MemoryArgs{
		Dst: uint64(dst.Addr()), Src: uint64(src.Addr()), DstStride: int64(dst.Stride()) * size, SrcStride: int64(src.Stride()) * size,
		Rows: uint64(dst.Rows()), RowBytes: uint64(dst.Cols()) * uint64(size),
	}
	return m.r.gpu.kernels.Memory(st, m.r.copyArgs, m.r.gpu.blocks)
}

// Drain waits for what was moved.
func (m *mover) Drain(st *cuda.Stream) error { return (*conn)(m).wait(context.Background(), st) }

var _ comm.Memory = (*conn)(nil)

// recordBytes is the pinned memory of one rank's records.
const recordBytes = kernels.NumRecords * int(unsafe.Sizeof(kernels.Record{}))
