package exchange

import (
	"context"
	"fmt"
	"math"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/cuda"
	"github.com/weftgo/weft/dtype"
	"github.com/weftgo/weft/internal/gputest"
	"github.com/weftgo/weft/internal/kernels"
)

// groupsOf makes groups of 128 numbers whose first one decides the scale: bf16 numbers of chosen mantissas and exponents; the others
// are bf16 numbers of all mantissas at 24 exponents below it, with both signs. Some groups have zeros, NaN and infinities too.
func groupsOf() []float32 {
	var x []float32
	odd := []float32{float32(math.NaN()), -float32(math.NaN()), float32(math.Inf(1)), float32(math.Copysign(0, -1)), 1e-45}
	add := func(e, m int) {
		most := math.Float32frombits(uint32(e)<<23 | uint32(m)<<16)
		at := len(x)
		for v := math.Float32bits(most); ; v -= 0x10000 {
			if len(x)%128 == 0 {
				x = append(x, most)
			}
			x = append(x, math.Float32frombits(v|uint32(len(x)%2)<<31))
			if v < 0x10000 || int(v>>23) < e-24 {
				break
			}
		}
		for i := 0; len(x)%128 != 0; i++ {
			x = append(x, 0)
		}
		if (e+m)%16 == 0 {
			x[at+1+m%127] = odd[e/16%len(odd)]
		}
	}
	for m := 0; m < 128; m += 3 {
		add(127, m)
	}
	for e := range 255 {
		add(e, 73*e%128)
	}
	return x
}

// TestQuantiseGPU compares every bit of weft_quantise with the twin's, but NaN's signs, in all types of rows.
func TestQuantiseGPU(t *testing.T) {
	dev := gputest.Device(t)
	set, err := kernels.Load(dev)
	require.NoError(t, err)
	x := groupsOf()
	for _, hidden := range []int{128, 4096, 328, 77} {
		rows := len(x) / hidden
		some := x[:rows*hidden]
		bf16, f16 := make([]dtype.BFloat16, len(some)), make([]dtype.Float16, len(some))
		for i, v := range some {
			bf16[i], f16[i] = dtype.ToBFloat16(v), dtype.ToFloat16(v)
		}
		for _, in := range []comm.Buffer{comm.Of(some, hidden), comm.Of(bf16, hidden), comm.Of(f16, hidden)} {
			t.Run(fmt.Sprintf("%v hidden %d", in.DType(), hidden), func(t *testing.T) { sameAsTwin(t, dev, set, in) })
		}
	}
	require.NoError(t, set.Close())
}

func sameAsTwin(t *testing.T, dev *cuda.Device, set *kernels.Set, in comm.Buffer) {
	rows, hidden := in.Rows(), in.Cols()
	groups := (hidden + 127) / 128
	q, scales := make([]dtype.E4M3, rows*hidden), make([]float32, rows*groups)
	new(Quantiser).Quantise(comm.Of(q, hidden), comm.Of(scales, groups), in)
	src, err := dev.Alloc(int(in.SizeBytes()))
	require.NoError(t, err)
	to, err := dev.Alloc(len(q))
	require.NoError(t, err)
	at, err := dev.Alloc(4 * len(scales))
	require.NoError(t, err)
	s, err := dev.NewStream(0)
	require.NoError(t, err)
	gotQ, gotScales := make([]dtype.E4M3, len(q)), make([]float32, len(scales))
	require.NoError(t, s.Copy(src, in.Addr(), int(in.SizeBytes())))
	require.NoError(t, s.Fill(to, 0xff, len(q)))
	require.NoError(t, s.Fill(at, 0xff, 4*len(scales)))
	require.NoError(t, set.Exchange().Quantise(s, &kernels.QuantArgs{Src: uint64(src), SrcStride: int64(hidden * in.DType().Size()), Q: uint64(to),
		Scales: uint64(at), Rows: uint32(rows), Hidden: uint32(hidden), DType: uint32(in.DType())}, 0))
	require.NoError(t, s.Copy(uintptr(unsafe.Pointer(&gotQ[0])), to, len(q)))
	require.NoError(t, s.Copy(uintptr(unsafe.Pointer(&gotScales[0])), at, 4*len(scales)))
	require.NoError(t, s.Wait(context.Background()))
	for i := range scales {
		require.Equal(t, math.Float32bits(scales[i]), math.Float32bits(gotScales[i]), "scale %d", i)
	}
	for i := range q {
		if q[i] != gotQ[i] && (q[i]&gotQ[i]&0x7f) != 0x7f { // the sign of inf/inf, and of -NaN, differs between processors
			t.Fatalf("row %d column %d: %#x, the twin %#x, scale %v", i/hidden, i%hidden, gotQ[i], q[i], scales[i/hidden*groups+i%hidden/128])
		}
	}
	require.NoError(t, dev.Free(src))
	require.NoError(t, dev.Free(to))
	require.NoError(t, dev.Free(at))
	require.NoError(t, s.Close())
}
