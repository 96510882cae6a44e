package local

import (
	"sync"
	"unsafe"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/dtype"
	"github.com/weftgo/weft/internal/simd"
)

// pieceSize is the elements that are reduced at once where memory between is needed: what fits the first-level cache with room
// for the inputs.
const pieceSize = 2048

// piece is the memory of one goroutine that reduces.
type piece struct {
	srcs, dsts [MaxRanks][]byte
	halves     [MaxRanks][]uint16 // srcs again
	acc        [pieceSize]float32
	tmp        [pieceSize]float32
	out        [pieceSize]int64 // room for any integer type
}

var pieces = sync.Pool{New: func() any { return new(piece) }}

// forget drops the references to the callers' memory.
func (p *piece) forget(numSrcs, numDsts int) {
	drop(p.srcs[:numSrcs])
	drop(p.dsts[:numDsts])
	if p.halves[0] != nil {
		clear(p.halves[:numSrcs])
	}
}

// drop is clear for a list that is mostly short: clear prepares for long ones.
func drop(x [][]byte) {
	for i := len(x) - 1; i >= 0; i-- {
		x[i] = nil
	}
}

// reduceTo combines srcs in order into each of dsts. All have the same length. Dsts may be among srcs: they are written only after,
// or element for element as, all have been read.
func (p *piece) reduceTo(dsts, srcs [][]byte, t dtype.DType, r comm.ReduceOp, stream bool) {
	switch {
	case t == dtype.F32 && r == comm.Sum:
		simd.SumAllBytes(dsts, srcs, false, stream)
	case t == dtype.BF16 && r == comm.Sum:
		simd.SumAllBytes(dsts, srcs, true, stream)
	default:
		p.reduce(dsts[0], srcs, t, r)
		for _, d := range dsts[1:] {
			copy(d, dsts[0])
		}
	}
}

// reduce combines srcs in order into out. All have the same length, pieceSize elements at most. Out may be one of srcs.
func (p *piece) reduce(out []byte, srcs [][]byte, t dtype.DType, r comm.ReduceOp) {
	switch {
	case t == dtype.F16 && r == comm.Sum:
		simd.SumIntoF16(of[uint16](out), halves(&p.halves, srcs))
	case t == dtype.I8:
		foldInts[int8](out, p.out[:], srcs, r)
	case t == dtype.U8:
		foldInts[uint8](out, p.out[:], srcs, r)
	case t == dtype.I32:
		foldInts[int32](out, p.out[:], srcs, r)
	case t == dtype.I64:
		foldInts[int64](out, p.out[:], srcs, r)
	default:
		acc := p.acc[:len(out)/t.Size()]
		p.reduceFloats(acc, srcs, t, r)
		narrow(out, acc, t)
	}
}

// halves views bytes as 16-bit words, with memory for the list.
func halves(list *[MaxRanks][]uint16, bytes [][]byte) [][]uint16 {
	for i, b := range bytes {
		list[i] = of[uint16](b)
	}
	return list[:len(bytes)]
}

// reduceFloats leaves the fp32 reduction in acc.
func (p *piece) reduceFloats(acc []float32, srcs [][]byte, t dtype.DType, r comm.ReduceOp) {
	tmp := p.tmp[:len(acc)]
	if r == comm.Sum || r == comm.Avg {
		clear(acc)
		for _, s := range srcs {
			x := widen(tmp, s, t)[:len(acc)] // of one length, so that the loop has no bounds checks
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
	copy(acc, widen(tmp, srcs[0], t))
	for _, s := range srcs[1:] {
		combine(acc, widen(tmp, s, t), r)
	}
}

// combine is acc = acc r x for Prod, Min and Max. Go's min and max return NaN when either is NaN.
func combine[T float32 | int8 | uint8 | int32 | int64](acc, x []T, r comm.ReduceOp) {
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
		simd.BF16ToF32(tmp, of[uint16](src))
	case dtype.F16:
		simd.F16ToF32(tmp, of[uint16](src))
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
		simd.F32ToBF16(of[uint16](out), acc)
	case dtype.F16:
		simd.F32ToF16(of[uint16](out), acc)
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

// foldInts reduces integers in their own width: sums and products wrap. It works in tmp.
func foldInts[T int8 | uint8 | int32 | int64](out []byte, tmp []int64, srcs [][]byte, r comm.ReduceOp) {
	acc := unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(tmp))), len(of[T](out)))
	copy(acc, of[T](srcs[0]))
	for _, s := range srcs[1:] {
		x := of[T](s)
		if r != comm.Sum {
			combine(acc, x, r)
			continue
		}
		for i, v := range x {
			acc[i] += v
		}
	}
	copy(of[T](out), acc)
}

// of views bytes as elements. A buffer of weft begins at an element of its type, so the alignment holds.
func of[T float32 | uint16 | int8 | uint8 | int32 | int64](b []byte) []T {
	var z T
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/int(unsafe.Sizeof(z)))
}
