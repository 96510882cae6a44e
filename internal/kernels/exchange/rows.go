package exchange

import (
	"fmt"
	"unsafe"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/dtype"
	"github.com/weftgo/weft/internal/simd"
)

// block is how many values of a row are summed at a time, in an fp32 accumulator on the stack.
const block = 512

// load widens columns [c, c+len(dst)) of row i of b, which is F32, BF16 or F16.
func load(dst []float32, b comm.Buffer, i, c int) {
	switch b.DType() {
	case dtype.F32:
		copy(dst, comm.Row[float32](b, i)[c:])
	case dtype.BF16:
		simd.BF16ToF32(dst, halves(comm.Row[dtype.BFloat16](b, i)[c:c+len(dst)]))
	case dtype.F16:
		simd.F16ToF32(dst, halves(comm.Row[dtype.Float16](b, i)[c:c+len(dst)]))
	default:
		panic(fmt.Sprintf("exchange: rows of %v", b))
	}
}

// store rounds src to b's type into columns [c, c+len(src)) of row i.
func store(b comm.Buffer, i, c int, src []float32) {
	switch b.DType() {
	case dtype.F32:
		copy(comm.Row[float32](b, i)[c:], src)
	case dtype.BF16:
		simd.F32ToBF16(halves(comm.Row[dtype.BFloat16](b, i)[c:c+len(src)]), src)
	case dtype.F16:
		simd.F32ToF16(halves(comm.Row[dtype.Float16](b, i)[c:c+len(src)]), src)
	default:
		panic(fmt.Sprintf("exchange: rows of %v", b))
	}
}

// halves views 16-bit floats as the integers that package simd takes.
func halves[T dtype.BFloat16 | dtype.Float16](x []T) []uint16 {
	return unsafe.Slice((*uint16)(unsafe.Pointer(unsafe.SliceData(x))), len(x))
}

// add adds columns [c, c+len(acc)) of row i of b to acc.
func add(acc []float32, b comm.Buffer, i, c int) {
	if b.DType() == dtype.F32 {
		simd.Add(acc, comm.Row[float32](b, i)[c:c+len(acc)])
		return
	}
	var wide [block]float32
	load(wide[:len(acc)], b, i, c)
	simd.Add(acc, wide[:len(acc)])
}

// addScaled adds weight times columns [c, c+len(acc)) of row i of b to acc, each product rounded to fp32 first.
func addScaled(acc []float32, weight float32, b comm.Buffer, i, c int) {
	if b.DType() == dtype.F32 {
		simd.AxpyExact(acc, comm.Row[float32](b, i)[c:c+len(acc)], weight)
		return
	}
	var wide [block]float32
	load(wide[:len(acc)], b, i, c)
	simd.AxpyExact(acc, wide[:len(acc)], weight)
}

// round replaces each value by the nearest of type t.
func round(x []float32, t dtype.DType) {
	var buf [block]uint16
	switch t {
	case dtype.BF16:
		simd.F32ToBF16(buf[:len(x)], x)
		simd.BF16ToF32(x, buf[:len(x)])
	case dtype.F16:
		simd.F32ToF16(buf[:len(x)], x)
		simd.F16ToF32(x, buf[:len(x)])
	}
}

// grain returns how many rows make a chunk of a loop that does work operations per row.
func grain(work int) int { return max(1, (1<<16)/max(work, 1)) }
