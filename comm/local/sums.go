package local

import (
	"unsafe"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/dtype"
)

// reduce combines srcs in order and returns the result in p's memory. All have the same length, pieceSize elements at
// most.
func (p *piece) reduce(srcs [][]byte, t dtype.DType, r comm.ReduceOp) []byte {
	n := len(srcs[0]) / t.Size()
	out := unsafe.Slice((*byte)(unsafe.Pointer(&p.out)), len(srcs[0]))
	switch t {
	case dtype.I8:
		foldInts[int8](out, srcs, r)
	case dtype.U8:
		foldInts[uint8](out, srcs, r)
	case dtype.I32:
		foldInts[int32](out, srcs, r)
	case dtype.I64:
		foldInts[int64](out, srcs, r)
	default:
		p.reduceFloats(srcs, n, t, r)
		narrow(out, p.acc[:n], t)
	}
	return out
}

// reduceFloats leaves the fp32 reduction of n elements in p.acc.
func (p *piece) reduceFloats(srcs [][]byte, n int, t dtype.DType, r comm.ReduceOp) {
	acc := p.acc[:n]
	if r == comm.Sum || r == comm.Avg {
		clear(acc)
		for _, s := range srcs {
			x := widen(p.tmp[:n], s, t)[:len(acc)] // of one length, so that the loop has no bounds checks
			for i := range acc {
				acc[i] += x[i]
			}
		}
		if r == comm.Avg {
			for i := range acc {
				acc[i] /= float32(len(srcs))
			}
		}
		return
	}
	copy(acc, widen(p.tmp[:n], srcs[0], t))
	for _, s := range srcs[1:] {
		combine(acc, widen(p.tmp[:n], s, t), r)
	}
}

// combine is acc = acc r x for Prod, Min and Max. Go's min and max return NaN when either is NaN.
func combine(acc, x []float32, r comm.ReduceOp) {
	switch r {
	case comm.Prod:
		for i, v := range x {
			acc[i] *= v
		}
	case comm.Min:
		for i, v := range x {
			acc[i] = min(acc[i], v)
		}
	case comm.Max:
		for i, v := range x {
			acc[i] = max(acc[i], v)
		}
	}
}

// widen returns len(tmp) elements of src as fp32: src itself, or converted in tmp.
func widen(tmp []float32, src []byte, t dtype.DType) []float32 {
	switch t {
	case dtype.F32:
		return of[float32](src)
	case dtype.BF16:
		x := of[dtype.BFloat16](src)[:len(tmp)]
		for i := range tmp {
			tmp[i] = x[i].Float32()
		}
	case dtype.F16:
		for i, v := range of[dtype.Float16](src) {
			tmp[i] = v.Float32()
		}
	case dtype.F8E4M3:
		for i, v := range src {
			tmp[i] = dtype.E4M3(v).Float32()
		}
	case dtype.F8E5M2:
		for i, v := range src {
			tmp[i] = e5m2[v]
		}
	}
	return tmp
}

// e5m2 widens by table.
var e5m2 = func() (t [256]float32) {
	for i := range t {
		t[i] = dtype.E5M2(i).Float32()
	}
	return t
}()

// narrow rounds acc to type t, once.
func narrow(out []byte, acc []float32, t dtype.DType) {
	switch t {
	case dtype.F32:
		copy(of[float32](out), acc)
	case dtype.BF16:
		x := of[dtype.BFloat16](out)
		for i, v := range acc {
			x[i] = dtype.ToBFloat16(v)
		}
	case dtype.F16:
		x := of[dtype.Float16](out)
		for i, v := range acc {
			x[i] = dtype.ToFloat16(v)
		}
	case dtype.F8E4M3:
		for i, v := range acc {
			out[i] = byte(dtype.ToE4M3(v))
		}
	case dtype.F8E5M2:
		for i, v := range acc {
			out[i] = byte(dtype.ToE5M2(v))
		}
	}
}

// foldInts reduces integers in their own width: sums and products wrap.
func foldInts[T int8 | uint8 | int32 | int64](out []byte, srcs [][]byte, r comm.ReduceOp) {
	acc := of[T](out)
	copy(acc, of[T](srcs[0]))
	for _, s := range srcs[1:] {
		x := of[T](s)
		switch r {
		case comm.Sum:
			for i, v := range x {
				acc[i] += v
			}
		case comm.Prod:
			for i, v := range x {
				acc[i] *= v
			}
		case comm.Min:
			for i, v := range x {
				acc[i] = min(acc[i], v)
			}
		case comm.Max:
			for i, v := range x {
				acc[i] = max(acc[i], v)
			}
		}
	}
}

// of views bytes as elements. A buffer of weft begins at an element of its type, so the alignment holds.
func of[T dtype.Element](b []byte) []T {
	var z T
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/int(unsafe.Sizeof(z)))
}
