package comm

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weftgo/weft/dtype"
)

func TestBufferViews(t *testing.T) {
	x := []float32{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}
	b := Of(x, 4)
	require.Equal(t, "f32[3, 4] cpu:0", b.String())
	require.EqualValues(t, 48, b.SizeBytes())
	require.Equal(t, x[4:8], Row[float32](b, 1))
	mid := b.Slice(1, 3).Columns(1, 3)
	require.Equal(t, "f32[2, 2] stride 4 cpu:0", mid.String())
	require.False(t, mid.Contiguous())
	require.Equal(t, []float32{9, 10}, Row[float32](mid, 1))
	_, err := View[float32](mid)
	require.ErrorContains(t, err, "not contiguous")
	_, err = View[int32](b)
	require.ErrorContains(t, err, "as i32")
	v, err := View[float32](b.Slice(3, 3))
	require.NoError(t, err)
	require.Empty(t, v)
	require.Equal(t, "no buffer", Buffer{}.String())
	require.Panics(t, func() { b.Slice(2, 4) })
	require.Panics(t, func() { b.Columns(3, 3) })
	require.Panics(t, func() { mid.Bytes() })
	require.Panics(t, func() { Row[int8](b, 0) })
	require.Panics(t, func() { b.RowBytes(3) })
}

func TestBufferFaults(t *testing.T) {
	gpu := Device{Kind: CUDA, Index: 2}
	for _, x := range []struct {
		b    Buffer
		text string
	}{
		{Buffer{}, "no buffer"},
		{Of(make([]int8, 7), 2), "7 elements is not a whole number of rows of 2"},
		{Of(make([]int8, 7), 0), "0 columns"},
		{At(Device{}, 64, dtype.F32, 1, 1, 1), "comm.Of"},
		{OfBytes(make([]byte, 7), dtype.I8, 4, 2), "7 bytes are too few for i8[4, 2]"},
		{OfBytes(make([]byte, 8), dtype.I8, 4, 0), "i8[4, 0]"},
		{OfBytes(atOddAddress(8), dtype.BF16, 2, 2), "not aligned"},
		{At(gpu, 64, dtype.F32, 2, 8, 4), "stride 4"},
		{At(gpu, 0, dtype.F32, 2, 8, 8), "null"},
		{At(gpu, 66, dtype.F32, 2, 8, 8), "device address 0x42 is not aligned to an element of f32"},
		{At(gpu, 64, dtype.Invalid, 2, 8, 8), "no element type"},
	} {
		require.ErrorContains(t, x.b.Validate(), x.text)
	}
	require.NoError(t, At(gpu, 0, dtype.F32, 0, 8, 8).Validate(), "no rows, no address")
	bytes := make([]byte, 24)
	require.NoError(t, OfBytes(bytes[4:], dtype.F32, 1, 5).Validate())
	Row[float32](OfBytes(bytes[4:], dtype.F32, 1, 5), 0)[1] = 1
	require.Equal(t, []byte{0, 0, 0x80, 0x3f}, bytes[8:12])
	b := At(gpu, 4096, dtype.BF16, 4, 8, 16)
	require.EqualValues(t, 4096+2*(16+3), b.Slice(1, 4).Columns(3, 5).Addr())
	require.Equal(t, "bf16[4, 8] stride 16 cuda:2", b.String())
	_, err := View[dtype.BFloat16](b)
	require.ErrorContains(t, err, "comm.Copy")
}

// Two views of one matrix overlap exactly when they have an element in common.
func TestOverlap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		whole := Of(make([]int32, 8*7), 7)
		owner := map[uintptr]bool{}
		draw := func(name string) Buffer {
			lo := rapid.IntRange(0, 8).Draw(t, name+" lo")
			hi := rapid.IntRange(lo, 8).Draw(t, name+" hi")
			left := rapid.IntRange(0, 6).Draw(t, name+" left")
			right := rapid.IntRange(left+1, 7).Draw(t, name+" right")
			return whole.Slice(lo, hi).Columns(left, right)
		}
		a, b := draw("a"), draw("b")
		for i := range a.Rows() {
			for j := range a.Cols() {
				owner[a.Addr()+uintptr(4*(i*7+j))] = true
			}
		}
		shared := false
		for i := range b.Rows() {
			for j := range b.Cols() {
				shared = shared || owner[b.Addr()+uintptr(4*(i*7+j))]
			}
		}
		require.Equal(t, shared, overlap(&a, &b), "%v %v", a, b)
		require.Equal(t, shared, overlap(&b, &a), "%v %v", b, a)
	})
}

// atOddAddress returns n bytes that begin where no element of two bytes may.
func atOddAddress(n int) []byte {
	x := make([]byte, n+1)
	if uintptr(unsafe.Pointer(&x[0]))%2 == 0 {
		return x[1:]
	}
	return x[:n]
}
