package simd

import (
	"fmt"
	"math"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// alignedSlices cuts k slices of n elements, offset elements past an address that streaming stores can use.
func alignedSlices[T float32 | uint16](k, n, offset int) [][]T {
	out := make([][]T, k)
	for i := range out {
		raw := make([]T, n+offset+64)
		at := 0
		for uintptr(unsafe.Pointer(&raw[at]))%64 != 0 {
			at++
		}
		out[i] = raw[at+offset : at+offset+n]
	}
	return out
}

func asBytes[T float32 | uint16](x [][]T) [][]byte {
	out := make([][]byte, len(x))
	for i, v := range x {
		out[i] = unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), len(v)*int(unsafe.Sizeof(*new(T))))
	}
	return out
}

func TestSumAllIsSumIntoEverywhere(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		numSrcs, numDsts := rapid.IntRange(0, 9).Draw(t, "srcs"), rapid.IntRange(1, 9).Draw(t, "dsts")
		n, offset := rapid.IntRange(0, 300).Draw(t, "n"), rapid.SampledFrom([]int{0, 0, 8, 1}).Draw(t, "offset")
		stream := rapid.Bool().Draw(t, "stream")
		special := []float32{float32(math.Copysign(0, -1)), 0, float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN()), 1e-42, 3e38}
		draw := func() float32 {
			if rapid.IntRange(0, 20).Draw(t, "kind") == 0 {
				return rapid.SampledFrom(special).Draw(t, "special")
			}
			return rapid.Float32Range(-1000, 1000).Draw(t, "value")
		}
		seed := make([]float32, 23)
		for i := range seed {
			seed[i] = draw()
		}
		srcs, halves := alignedSlices[float32](numSrcs, n, offset), alignedSlices[uint16](numSrcs, n, offset)
		for r := range srcs {
			for i := range n {
				v := seed[(i*(r+3)+i/7)%len(seed)]
				srcs[r][i], halves[r][i] = v, uint16(math.Float32bits(v)>>16)
			}
		}
		want, wantHalves := make([]float32, n), make([]uint16, n)
		restore := Force(Go)
		SumInto(want, srcs)
		SumIntoBF16(wantHalves, halves)
		restore()
		defer Force(Level(rapid.IntRange(int(Go), int(Supported())).Draw(t, "level")))()
		dsts, dstHalves := alignedSlices[float32](numDsts, n, offset), alignedSlices[uint16](numDsts, n, offset)
		if numSrcs > 0 && rapid.Bool().Draw(t, "in place") {
			dsts[0], dstHalves[0] = srcs[numSrcs-1], halves[numSrcs-1]
		}
		if rapid.Bool().Draw(t, "bytes") {
			SumAllBytes(asBytes(dsts), asBytes(srcs), false, stream)
			SumAllBytes(asBytes(dstHalves), asBytes(halves), true, stream)
		} else {
			SumAll(dsts, srcs, stream)
			SumAllBF16(dstHalves, halves, stream)
		}
		for k := range dsts {
			for i := range n {
				if math.Float32bits(dsts[k][i]) != math.Float32bits(want[i]) && !(want[i] != want[i] && dsts[k][i] != dsts[k][i]) {
					t.Fatalf("dst %d, element %d of %d: %v, want %v", k, i, n, dsts[k][i], want[i])
				}
				if g, w := dstHalves[k][i], wantHalves[i]; g != w && !(isNaN16(bf16, g) && isNaN16(bf16, w)) {
					t.Fatalf("bf16 dst %d, element %d of %d: %#x, want %#x", k, i, n, g, w)
				}
			}
		}
	})
}

func TestSumAllAtLevelGo(t *testing.T) {
	defer Force(Go)()
	dsts := [][]float32{{9, 9}, {9, 9}}
	SumAll(dsts, [][]float32{{1, 2}, {3, 4}}, true)
	require.Equal(t, [][]float32{{4, 6}, {4, 6}}, dsts)
	halves := [][]uint16{{0}, {0}}
	SumAllBF16(halves, [][]uint16{{0x3f80}, {0x4000}}, true)
	require.Equal(t, [][]uint16{{0x4040}, {0x4040}}, halves)
}

func TestSumAllRefusesShortArrays(t *testing.T) {
	require.Panics(t, func() { SumAll([][]float32{make([]float32, 3), make([]float32, 2)}, nil, false) })
	require.Panics(t, func() { SumAll([][]float32{make([]float32, 3)}, [][]float32{make([]float32, 2)}, false) })
	SumAll(nil, [][]float32{{1}}, false)
}

func BenchmarkSumAll(b *testing.B) {
	for _, bytes := range []int{8 << 10, 128 << 10, 16 << 20} {
		for _, stream := range []bool{false, true} {
			b.Run(fmt.Sprintf("f32/%dKiB/stream=%v", bytes>>10, stream), func(b *testing.B) {
				srcs, dsts := alignedSlices[float32](2, bytes/4, 0), alignedSlices[float32](2, bytes/4, 0)
				b.SetBytes(int64(4 * bytes))
				for b.Loop() {
					SumAll(dsts, srcs, stream)
				}
			})
			b.Run(fmt.Sprintf("bf16/%dKiB/stream=%v", bytes>>10, stream), func(b *testing.B) {
				srcs, dsts := alignedSlices[uint16](2, bytes/2, 0), alignedSlices[uint16](2, bytes/2, 0)
				b.SetBytes(int64(4 * bytes))
				for b.Loop() {
					SumAllBF16(dsts, srcs, stream)
				}
			})
		}
	}
}
