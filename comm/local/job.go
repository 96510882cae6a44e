package local

import (
	"sync"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/internal/par"
)

// job is the copying and reducing of one rank, in pieces that idle cores may take. Its functions are bound once, so that
// a call allocates nothing.
type job struct {
	copyFn, rowsFn, reduceFn func(lo, hi int)

	dst, src   comm.Buffer   // of a copy
	dsts, srcs []comm.Buffer // of a reduction
	reduce     comm.ReduceOp
	base       int  // first element of the reduction
	dense      bool // no buffer of the reduction has gaps between rows
}

// copyGrain and reduceGrain are the bytes that are worth handing to another core.
const (
	copyGrain   = 256 << 10
	reduceGrain = 512 << 10
)

func (j *job) bind() { j.copyFn, j.rowsFn, j.reduceFn = j.copyBytes, j.copyRows, j.reduceRange }

// copy copies src to dst, which have the same shape.
func (j *job) copy(dst, src comm.Buffer) {
	if src.Rows() == 0 || dst.Addr() == src.Addr() && (dst.Stride() == src.Stride() || src.Rows() == 1) {
		return // nothing, or in place
	}
	j.dst, j.src = dst, src
	if dst.Contiguous() && src.Contiguous() {
		par.For(int(src.SizeBytes()), copyGrain, j.copyFn)
	} else {
		par.For(src.Rows(), copyGrain/int(rowBytes(src))+1, j.rowsFn)
	}
	j.dst, j.src = comm.Buffer{}, comm.Buffer{}
}

func (j *job) copyBytes(lo, hi int) { copy(j.dst.Bytes()[lo:hi], j.src.Bytes()[lo:hi]) }

func (j *job) copyRows(lo, hi int) {
	for i := lo; i < hi; i++ {
		copy(j.dst.RowBytes(i), j.src.RowBytes(i))
	}
}

// sources sets srcs to one part of all ranks, in rank order.
func (j *job) sources(m *meeting, turn, part int) {
	for i := range m.seats {
		j.srcs = append(j.srcs, m.seats[i].calls[turn].op.Parts[part].Src)
	}
}

// reduceAll reduces elements [lo, hi) of all srcs, counted row by row, into all dsts.
func (j *job) reduceAll(r comm.ReduceOp, lo, hi int) {
	j.reduce, j.base, j.dense = r, lo, true
	for i := range j.srcs {
		j.dense = j.dense && j.srcs[i].Contiguous()
	}
	for i := range j.dsts {
		j.dense = j.dense && j.dsts[i].Contiguous()
	}
	size := j.srcs[0].DType().Size()
	par.For(hi-lo, max(1, reduceGrain/size/(len(j.srcs)+len(j.dsts))), j.reduceFn)
	clear(j.srcs)
	clear(j.dsts)
	j.srcs, j.dsts = j.srcs[:0], j.dsts[:0]
}

// pieceSize is the elements that are reduced at once: what fits the first-level cache with room for the inputs.
const pieceSize = 2048

// piece is the memory of one reduceRange.
type piece struct {
	srcs   [MaxRanks][]byte
	floats [MaxRanks][]float32 // srcs again
	halves [MaxRanks][]uint16  // srcs again
	acc    [pieceSize]float32
	tmp    [pieceSize]float32
	out    [pieceSize]int64 // room for any integer type
}

var pieces = sync.Pool{New: func() any { return new(piece) }}

// reduceRange reduces a range of elements, counted from base. A piece is read from all inputs before it is written to any
// output, so outputs may be inputs; the first output is where the result is made.
func (j *job) reduceRange(lo, hi int) {
	p := pieces.Get().(*piece)
	t, cols := j.srcs[0].DType(), j.srcs[0].Cols()
	lo, hi = lo+j.base, hi+j.base
	for lo < hi {
		end := min(hi, lo+pieceSize)
		if !j.dense {
			end = min(end, (lo/cols+1)*cols)
		}
		for i := range j.srcs {
			p.srcs[i] = j.bytes(&j.srcs[i], lo, end)
		}
		out := j.bytes(&j.dsts[0], lo, end)
		p.reduce(out, p.srcs[:len(j.srcs)], t, j.reduce)
		for i := range j.dsts[1:] {
			copy(j.bytes(&j.dsts[i+1], lo, end), out)
		}
		lo = end
	}
	n := len(j.srcs)
	clear(p.srcs[:n])
	clear(p.floats[:n])
	clear(p.halves[:n])
	pieces.Put(p)
}

// bytes returns elements [lo, hi) of b, which lie in one row unless the job is dense.
func (j *job) bytes(b *comm.Buffer, lo, hi int) []byte {
	size := b.DType().Size()
	if j.dense {
		return b.Bytes()[lo*size : hi*size]
	}
	row, at := lo/b.Cols(), lo%b.Cols()
	return b.RowBytes(row)[at*size : (at+hi-lo)*size]
}
