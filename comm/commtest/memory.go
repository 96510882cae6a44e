package commtest

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/dtype"
)

// poison is what memory holds before a call: all ones are a NaN in every floating-point type.
const poison = 0xff

// field is device memory with a margin around what a call sees: view is [rows, cols] in the middle of rows of
// cols + gap elements.
type field struct {
	whole, view comm.Buffer
	left        int // columns before the view
}

// alloc returns poisoned memory.
func alloc(tb testing.TB, c *comm.Comm, t dtype.DType, rows, cols, gap int) field {
	whole, err := comm.Alloc(c, t, rows, cols+gap)
	require.NoError(tb, err)
	tb.Cleanup(func() { _ = comm.Free(c, whole) })
	f := field{whole: whole, view: whole.Columns(gap/2, gap/2+cols), left: gap / 2}
	x := newTensor(t, rows, cols+gap)
	for i := range x.raw {
		x.raw[i] = poison
	}
	upload(tb, c, whole, x)
	return f
}

// upload copies x to b, which has its shape.
func upload(tb testing.TB, c *comm.Comm, b comm.Buffer, x tensor) {
	require.NoError(tb, comm.Copy(c, comm.Stream{}, b, x.buffer()))
	require.NoError(tb, c.Wait(tb.Context(), comm.Stream{}))
}

// download copies b to the host.
func download(tb testing.TB, c *comm.Comm, b comm.Buffer) tensor {
	x := newTensor(b.DType(), b.Rows(), b.Cols())
	require.NoError(tb, comm.Copy(c, comm.Stream{}, x.buffer(), b))
	require.NoError(tb, c.Wait(tb.Context(), comm.Stream{}))
	return x
}

// requireMargin checks that nothing was written outside rows [lo, hi) of the view.
func (f field) requireMargin(tb testing.TB, c *comm.Comm, lo, hi int) {
	x := download(tb, c, f.whole)
	size, cols := x.t.Size(), f.view.Cols()
	for i := range x.rows {
		row := x.raw[i*x.cols*size : (i+1)*x.cols*size]
		if i >= lo && i < hi {
			row = append(bytes.Clone(row[:f.left*size]), row[(f.left+cols)*size:]...)
		}
		if bytes.Count(row, []byte{poison}) != len(row) {
			tb.Fatalf("row %d of %v was written outside rows [%d, %d), columns [%d, %d)", i, f.whole, lo, hi, f.left, f.left+cols)
		}
	}
}

// buffer views the tensor's memory.
func (x tensor) buffer() comm.Buffer { return comm.OfBytes(x.raw, x.t, x.rows, x.cols) }

// int32s makes a row of counts on the device.
func int32s(tb testing.TB, c *comm.Comm, n ...int) comm.Buffer {
	f := make([]int32, len(n))
	for i, v := range n {
		f[i] = int32(v)
	}
	b, err := comm.Alloc(c, dtype.I32, 1, len(n))
	require.NoError(tb, err)
	tb.Cleanup(func() { _ = comm.Free(c, b) })
	require.NoError(tb, comm.Copy(c, comm.Stream{}, b, comm.Of(f, len(n))))
	require.NoError(tb, c.Wait(tb.Context(), comm.Stream{}))
	return b
}

// ints reads a row of counts.
func ints(tb testing.TB, c *comm.Comm, b comm.Buffer) []int {
	x := download(tb, c, b)
	n := make([]int, b.Cols())
	for i := range n {
		n[i] = int(integer(x, i))
	}
	return n
}
