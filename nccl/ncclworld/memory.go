package ncclworld

import (
	"context"
	"fmt"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/cuda"
	"github.com/weftgo/weft/dtype"
	"github.com/weftgo/weft/nccl"
)

// Alloc returns zeroed memory [rows, cols] of the rank's device.
func (c *conn) Alloc(t dtype.DType, rows, cols int) (comm.Buffer, error) {
	if err := c.open("alloc"); err != nil {
		return comm.Buffer{}, err
	}
	addr, err := c.r.zeroed(rows * cols * t.Size())
	if err != nil {
		return comm.Buffer{}, c.fail("alloc", fmt.Errorf("%v[%d, %d]: %w", t, rows, cols, err))
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
	if err := c.r.pool.give(b.Addr()); err != nil {
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

// fail gives an error of the packages below its class and its rank.
func (c *conn) fail(op string, err error) error {
	return &comm.Error{Op: op, Rank: c.r.index, Peer: comm.NoPeer, Code: codeOf(err), Err: err}
}

// Copy copies rows between two buffers of the device, which it enqueues, or between the host and the device, which it
// waits for: host memory goes through pinned memory in pieces.
func (c *conn) Copy(s comm.Stream, dst, src comm.Buffer) error {
	if err := c.open("copy"); err != nil {
		return err
	}
	for _, b := range []comm.Buffer{dst, src} {
		if b.Device().Kind != comm.CPU && b.Device() != c.Device() {
			return comm.Errorf("copy", c.r.index, comm.Invalid, "%v is not on this rank's device %v", b, c.Device())
		}
	}
	fromHost, toHost := src.Device().Kind == comm.CPU, dst.Device().Kind == comm.CPU
	if fromHost && toHost {
		for i := range dst.Rows() {
			copy(dst.RowBytes(i), src.RowBytes(i))
		}
		return nil
	}
	st, err := c.stream(s)
	if err == nil {
		err = c.r.order(st)
	}
	if err != nil {
		return c.fail("copy", err)
	}
	if dst.Rows() == 0 {
		return nil
	}
	if fromHost || toHost {
		return c.bounce(st, dst, src)
	}
	return c.rows(st, copyOf(dst, src))
}

// copyOf describes a copy between buffers of one shape.
func copyOf(dst, src comm.Buffer) nccl.RowCopy {
	size := uint64(dst.DType().Size())
	x := nccl.RowCopy{Dst: uint64(dst.Addr()), DstPitch: uint64(dst.Stride()) * size, Src: uint64(src.Addr()), SrcPitch: uint64(src.Stride()) * size,
		Width: uint64(dst.Cols()) * size, Rows: uint64(dst.Rows())}
	if dst.Contiguous() && src.Contiguous() { // one long row has no pitch to be too large
		x.Width, x.Rows = x.Width*x.Rows, 1
		x.DstPitch, x.SrcPitch = x.Width, x.Width
	}
	return x
}

// rows enqueues a copy.
func (c *conn) rows(st *cuda.Stream, x nccl.RowCopy) error {
	if err := nccl.CopyRows(c.r.dev, st, x); err != nil {
		return c.fail("copy", err)
	}
	return nil
}

// bounce copies between the host and the device through the rank's pinned memory, as many rows at a time as fit, or columns
// of one row.
func (c *conn) bounce(st *cuda.Stream, dst, src comm.Buffer) error {
	rowBytes := dst.Cols() * dst.DType().Size()
	if rowBytes > bounceBytes {
		half := dst.Cols() / 2
		if err := c.bounce(st, dst.Columns(0, half), src.Columns(0, half)); err != nil {
			return err
		}
		return c.bounce(st, dst.Columns(half, dst.Cols()), src.Columns(half, src.Cols()))
	}
	step := bounceBytes / rowBytes
	for lo := 0; lo < dst.Rows(); lo += step {
		hi := min(dst.Rows(), lo+step)
		if err := c.bouncePiece(st, dst.Slice(lo, hi), src.Slice(lo, hi)); err != nil {
			return err
		}
	}
	return nil
}

func (c *conn) bouncePiece(st *cuda.Stream, dst, src comm.Buffer) error {
	rowBytes := dst.Cols() * dst.DType().Size()
	memory := c.r.bounce.Bytes()
	packed := comm.At(c.Device(), c.r.bounce.Addr(), dst.DType(), dst.Rows(), dst.Cols(), dst.Cols())
	upload := src.Device().Kind == comm.CPU
	x := copyOf(packed, src)
	if upload {
		for i := range src.Rows() {
			copy(memory[i*rowBytes:], src.RowBytes(i))
		}
		x = copyOf(dst, packed)
	}
	if err := c.rows(st, x); err != nil {
		return err
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
