package commtest

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/dtype"
)

// tensor is host memory [rows, cols] of one type, little-endian and without gaps.
type tensor struct {
	t          dtype.DType
	rows, cols int
	raw        []byte
}

func newTensor(t dtype.DType, rows, cols int) tensor {
	return tensor{t: t, rows: rows, cols: cols, raw: make([]byte, rows*cols*t.Size())}
}

// slice returns rows [lo, hi), sharing memory.
func (x tensor) slice(lo, hi int) tensor {
	n := x.cols * x.t.Size()
	return tensor{t: x.t, rows: hi - lo, cols: x.cols, raw: x.raw[lo*n : hi*n]}
}

// concat puts tensors of equal columns under each other.
func concat(t dtype.DType, cols int, parts ...tensor) tensor {
	out := tensor{t: t, cols: cols}
	for _, p := range parts {
		out.rows += p.rows
		out.raw = append(out.raw, p.raw...)
	}
	return out
}

// exact fills a tensor with small integers, which every type holds; sums of a few of them are exact in most types.
func exact(t dtype.DType, rows, cols, rank, part int) tensor {
	x := newTensor(t, rows, cols)
	f := make([]float32, rows*cols)
	for i := range f {
		f[i] = float32((i*3+rank*7+part*5+i/11)%5 - 2)
		if t == dtype.U8 {
			f[i] += 2
		}
	}
	must(dtype.FromFloat32s(x.raw, f, t))
	return x
}

// rough fills a tensor with values whose sum depends on the order: magnitudes from 2^-8 to 2^8 (2^-3 to 2^3 for fp8),
// both signs, now and then -0, a subnormal, and with special an infinity or a NaN. Integers get all their bits.
func rough(t dtype.DType, rows, cols, rank, part int, special bool) tensor {
	x := newTensor(t, rows, cols)
	rng := rand.New(rand.NewPCG(uint64(rank+1), uint64(part)<<8|uint64(t)))
	if !t.IsFloat() {
		for i := range x.raw {
			x.raw[i] = byte(rng.Uint32())
		}
		return x
	}
	reach := 8.0
	if t.Size() == 1 {
		reach = 3
	}
	f := make([]float32, rows*cols)
	for i := range f {
		f[i] = float32(math.Exp2(reach*(2*rng.Float64()-1)) * float64(rng.IntN(2)*2-1))
		switch k := rng.IntN(64); {
		case k < 2:
			f[i] = float32(math.Copysign(0, -1))
		case k == 2:
			f[i] = math.Float32frombits(rng.Uint32N(1 << 20))
		case k == 3 && special:
			f[i] = float32(math.Inf(1 - 2*rng.IntN(2)))
		case k == 4 && special:
			f[i] = float32(math.NaN())
		}
	}
	must(dtype.FromFloat32s(x.raw, f, t))
	return x
}

// reduce is the oracle of a reduction: element by element, in rank order; floats in fp32 (sums from +0) and rounded once,
// integers modulo their width.
func reduce(srcs []tensor, r comm.ReduceOp) tensor {
	out := newTensor(srcs[0].t, srcs[0].rows, srcs[0].cols)
	if out.t.IsFloat() {
		values := make([][]float32, len(srcs))
		for i, s := range srcs {
			values[i] = s.floats()
		}
		result := make([]float32, out.rows*out.cols)
		for i := range result {
			result[i] = combineFloats(values, i, r)
		}
		must(dtype.FromFloat32s(out.raw, result, out.t))
		return out
	}
	size := out.t.Size()
	for i := range out.rows * out.cols {
		acc := integer(srcs[0], i)
		for _, s := range srcs[1:] {
			acc = combineInt(acc, integer(s, i), r)
		}
		var b [8]byte
		binary.LittleEndian.PutUint64(b[:], uint64(acc))
		copy(out.raw[i*size:(i+1)*size], b[:])
	}
	return out
}

// combineFloats reduces element i of all ranks.
func combineFloats(values [][]float32, i int, r comm.ReduceOp) float32 {
	var acc float32
	for rank := range values {
		v := values[rank][i]
		switch {
		case r == comm.Sum || r == comm.Avg:
			acc = float32(acc + v)
		case rank == 0:
			acc = v
		case r == comm.Prod:
			acc = float32(acc * v)
		case acc != acc || v != v:
			acc = float32(math.NaN())
		case r == comm.Min:
			acc = float32(math.Min(float64(acc), float64(v)))
		case r == comm.Max:
			acc = float32(math.Max(float64(acc), float64(v)))
		}
	}
	if r == comm.Avg {
		acc = float32(acc / float32(len(values)))
	}
	return acc
}

// combineInt works in 64 bits; the caller keeps the low ones.
func combineInt(a, b int64, r comm.ReduceOp) int64 {
	switch r {
	case comm.Prod:
		return a * b
	case comm.Min:
		return min(a, b)
	case comm.Max:
		return max(a, b)
	}
	return a + b
}

// floats returns all elements as fp32.
func (x tensor) floats() []float32 {
	f := make([]float32, x.rows*x.cols)
	must(dtype.Float32s(f, x.raw, x.t))
	return f
}

func float(x tensor, i int) float32 {
	f := make([]float32, 1)
	must(dtype.Float32s(f, x.raw[i*x.t.Size():], x.t))
	return f[0]
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func integer(x tensor, i int) int64 {
	b := x.raw[i*x.t.Size():]
	switch x.t {
	case dtype.I8:
		return int64(int8(b[0]))
	case dtype.U8:
		return int64(b[0])
	case dtype.I32:
		return int64(int32(binary.LittleEndian.Uint32(b)))
	default:
		return int64(binary.LittleEndian.Uint64(b))
	}
}

// mismatch returns the first element where two tensors differ in bits, or -1. Any NaN equals any NaN.
func mismatch(a, b tensor) int {
	if bytes.Equal(a.raw, b.raw) {
		return -1
	}
	size := a.t.Size()
	for i := range min(len(a.raw), len(b.raw)) / size {
		if bytes.Equal(a.raw[i*size:(i+1)*size], b.raw[i*size:(i+1)*size]) {
			continue
		}
		if x, y := float(a, i), float(b, i); a.t.IsFloat() && x != x && y != y {
			continue
		}
		return i
	}
	if len(a.raw) != len(b.raw) {
		return min(len(a.raw), len(b.raw)) / size
	}
	return -1
}
