package p2p

import (
	"context"
	"fmt"
	"unsafe"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/dtype"
	"github.com/weftgo/weft/internal/kernels"
)

// Alloc returns zeroed memory [rows, cols] of the rank's device. Peers may address it.
func (c *conn) Alloc(t dtype.DType, rows, cols int) (comm.Buffer, error) {
	if err := c.usable("alloc"); err != nil {
		return comm.Buffer{}, err
	}
	addr, err := c.r.zeroed(max(1, rows*cols*t.Size()))
	if err != nil {
		return comm.Buffer{}, c.memoryError("alloc", fmt.Errorf("%v[%d, %d]: %w", t, rows, cols, err))
	}
	return comm.At(c.Device(), addr, t, rows, cols, cols), nil
}

// Free gives memory of Alloc back to the rank's arena. Nothing that was enqueued may still use it.
func (c *conn) Free(b comm.Buffer) error {
	if b.IsZero() {
		return nil
	}
	if err := c.r.arena.free(b.Addr()); err != nil {
		return c.memoryError("free", err)
	}
	return nil
}

func (c *conn) usable(op string) error {
	if c.g.w.numOpen.Load() == 0 || c.r.lost.Load() {
		return comm.Errorf(op, c.r.index, comm.Invalid, "the world is closed")
	}
	return nil
}

func (c *conn) memoryError(op string, err error) error {
	return &comm.Error{Op: op, Rank: c.r.index, Peer: comm.NoPeer, Code: codeOf(err), Err: err}
}

// Copy copies rows between two buffers of the device, which it enqueues, or between the host and the device, which it
// waits for: host memory goes through pinned memory in pieces.
func (c *conn) Copy(s comm.Stream, dst, src comm.Buffer) error {
	if err := c.usable("copy"); err != nil {
		return err
	}
	st, err := c.stream(s)
	if err == nil {
		err = c.r.order(st)
	}
	if err != nil {
		return c.memoryError("copy", err)
	}
	onHost := func(b comm.Buffer) bool { return b.Device().Kind == comm.CPU }
	for _, b := range []comm.Buffer{dst, src} {
		if !onHost(b) && b.Device() != c.Device() {
			return comm.Errorf("copy", c.r.index, comm.Invalid, "%v is not on this rank's device %v", b, c.Device())
		}
	}
	switch {
	case onHost(dst) && onHost(src):
		for i := range dst.Rows() {
			copy(dst.RowBytes(i), src.RowBytes(i))
		}
		return nil
	case onHost(dst) || onHost(src):
		return c.bounce(s, dst, src)
	}
	if err := c.r.gpu.kernels.Memory(st, c.r.memoryArgs(dst, src, dst.Addr(), src.Addr()), c.r.gpu.blocks); err != nil {
		return c.memoryError("copy", err)
	}
	return nil
}

// memoryArgs fills the rank's one set of arguments, which a launch copies: a copy allocates nothing.
func (r *rank) memoryArgs(dst, src comm.Buffer, to, from uintptr) *kernels.MemoryArgs {
	size := int64(dst.DType().Size())
	*r.copyArgs = kernels.MemoryArgs{
		Dst: uint64(to), Src: uint64(from), DstStride: int64(dst.Stride()) * size, SrcStride: int64(src.Stride()) * size,
		Rows: uint64(dst.Rows()), RowBytes: uint64(dst.Cols()) * uint64(size),
	}
	return r.copyArgs
}

// bounce copies between the host and the device through the rank's pinned memory, as many rows at a time as fit, or columns
// of one row.
func (c *conn) bounce(s comm.Stream, dst, src comm.Buffer) error {
	size := dst.DType().Size()
	rowBytes := dst.Cols() * size
	if dst.Rows() == 0 {
		return nil
	}
	if rowBytes > bounceBytes {
		half := dst.Cols() / 2
		if err := c.bounce(s, dst.Columns(0, half), src.Columns(0, half)); err != nil {
			return err
		}
		return c.bounce(s, dst.Columns(half, dst.Cols()), src.Columns(half, src.Cols()))
	}
	step := bounceBytes / rowBytes
	for lo := 0; lo < dst.Rows(); lo += step {
		hi := min(dst.Rows(), lo+step)
		if err := c.bouncePiece(s, dst.Slice(lo, hi), src.Slice(lo, hi)); err != nil {
			return err
		}
	}
	return nil
}

// bouncePiece copies rows that fit the pinned memory.
func (c *conn) bouncePiece(s comm.Stream, dst, src comm.Buffer) error {
	st, err := c.stream(s)
	if err != nil {
		return c.memoryError("copy", err)
	}
	rowBytes := dst.Cols() * dst.DType().Size()
	memory, pinned := c.r.bounce.Bytes(), c.r.bounce.Addr()
	packed := comm.At(c.Device(), pinned, dst.DType(), dst.Rows(), dst.Cols(), dst.Cols())
	upload := src.Device().Kind == comm.CPU
	var args *kernels.MemoryArgs
	if upload {
		for i := range src.Rows() {
			copy(memory[i*rowBytes:], src.RowBytes(i))
		}
		args = c.r.memoryArgs(dst, packed, dst.Addr(), pinned)
	} else {
		args = c.r.memoryArgs(packed, src, pinned, src.Addr())
	}
	if err := c.r.gpu.kernels.Memory(st, args, c.r.gpu.blocks); err != nil {
		return c.memoryError("copy", err)
	}
	if err := c.wait(context.Background(), st); err != nil {
		return err
	}
	if !upload {
		for i := range dst.Rows() {
			copy(dst.RowBytes(i), memory[i*rowBytes:(i+1)*rowBytes])
		}
	}
	return nil
}

var _ comm.Memory = (*conn)(nil)

// recordBytes is the pinned memory of one rank's records.
const recordBytes = kernels.NumRecords * int(unsafe.Sizeof(kernels.Record{}))
