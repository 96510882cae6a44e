package exchange

import (
	"fmt"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/dtype"
)

// block is how many values of a row are summed at a time, in an fp32 accumulator on the stack.
const block = 512

// load widens columns [c, c+len(dst)) of row i of b, which is F32, BF16 or F16.
func load(dst []float32, b comm.Buffer, i, c int) {
	switch b.DType() {
	case dtype.F32:
		copy(dst, comm.Row[float32](b, i)[c:])
	case dtype.BF16:
		for j, v := range comm.Row[dtype.BFloat16](b, i)[c : c+len(dst)] {
			dst[j] = v.Float32()
		}
	case dtype.F16:
		for j, v := range comm.Row[dtype.Float16](b, i)[c : c+len(dst)] {
			dst[j] = v.Float32()
		}
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
		row := comm.Row[dtype.BFloat16](b, i)[c : c+len(src)]
		for j := range row {
			row[j] = dtype.ToBFloat16(src[j])
		}
	case dtype.F16:
		row := comm.Row[dtype.Float16](b, i)[c : c+len(src)]
		for j := range row {
			row[j] = dtype.ToFloat16(src[j])
		}
	default:
		panic(fmt.Sprintf("exchange: rows of %v", b))
	}
}

// add adds columns [c, c+len(acc)) of row i of b to acc.
func add(acc []float32, b comm.Buffer, i, c int) {
	if b.DType() == dtype.F32 {
		row := comm.Row[float32](b, i)[c : c+len(acc)]
		for j, v := range row {
			acc[j] += v
		}
		return
	}
	var wide [block]float32
	load(wide[:len(acc)], b, i, c)
	for j, v := range wide[:len(acc)] {
		acc[j] += v
	}
}

// addScaled adds weight times columns [c, c+len(acc)) of row i of b to acc, each product rounded to fp32 first.
func addScaled(acc []float32, weight float32, b comm.Buffer, i, c int) {
	if b.DType() == dtype.F32 {
		row := comm.Row[float32](b, i)[c : c+len(acc)]
		for j, v := range row {
			acc[j] += float32(weight * v)
		}
		return
	}
	var wide [block]float32
	load(wide[:len(acc)], b, i, c)
	for j, v := range wide[:len(acc)] {
		acc[j] += float32(weight * v)
	}
}

// round replaces each value by the nearest of type t.
func round(x []float32, t dtype.DType) {
	switch t {
	case dtype.BF16:
		for i, v := range x {
			x[i] = dtype.ToBFloat16(v).Float32()
		}
	case dtype.F16:
		for i, v := range x {
			x[i] = dtype.ToFloat16(v).Float32()
		}
	}
}

// grain returns how many rows make a chunk of a loop that does work operations per row.
func grain(work int) int { return max(1, (1<<16)/max(work, 1)) }
