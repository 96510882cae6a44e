package local

import (
	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/dtype"
	"github.com/weftgo/weft/internal/par"
	"github.com/weftgo/weft/internal/simd"
)

// job is the copying and reducing of one rank, in pieces that idle cores may take. Its functions are bound once, so that
// a call allocates nothing.
type job struct {
	copyFn, rowsFn, denseFn, reduceFn func(lo, hi int)

	to, from   []byte        // of a dense copy
	dst, src   comm.Buffer   // of a copy with gaps between rows
	dsts, srcs []comm.Buffer // of a reduction
	outs, ins  [][]byte      // of a dense reduction: what is reduced into each of outs
	dtype      dtype.DType
	reduce     comm.ReduceOp
	base       int    // first element of the reduction with gaps
	stream     bool   // results go past the caches
	written    int    // bytes of a share that is reduced in several parts; 0 if it is one
	own        *piece // of the rank's own goroutine
}

// copyGrain and reduceGrain are the bytes that are worth handing to another core.
const (
	copyGrain   = 256 << 10
	reduceGrain = 512 << 10
)

// streamBytes is the bytes that one rank writes from which on they go past the caches, so that memory need not be read before
// it is written: several such ranks fill the last-level cache. Go's copy does so from 1 MiB on, so copies are cut larger then.
const (
	streamBytes = 4 << 20
	streamGrain = 2 << 20
)

func (j *job) bind() {
	j.copyFn, j.rowsFn, j.denseFn, j.reduceFn = j.copyBytes, j.copyRows, j.reduceDense, j.reduceRange
}

// copy copies src to dst, which have the same shape.
func (j *job) copy(dst, src comm.Buffer) {
	if src.Rows() == 0 || dst.Addr() == src.Addr() && (dst.Stride() == src.Stride() || src.Rows() == 1) {
		return // nothing, or in place
	}
	if dst.Contiguous() && src.Contiguous() {
		j.copyDense(dst.Bytes(), src.Bytes())
		return
	}
	j.dst, j.src = dst, src
	par.For(src.Rows(), copyGrain/int(rowBytes(src))+1, j.rowsFn)
	j.dst, j.src = comm.Buffer{}, comm.Buffer{}
}

func (j *job) copyDense(to, from []byte) {
	n := len(from)
	if n <= copyGrain {
		copy(to, from)
		return
	}
	grain := copyGrain
	if n >= streamGrain {
		grain = streamGrain
	}
	j.to, j.from = to[:n], from
	par.For(n, grain, j.copyFn)
	j.to, j.from = nil, nil
}

func (j *job) copyBytes(lo, hi int) { copy(j.to[lo:hi], j.from[lo:hi]) }

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
	t := j.srcs[0].DType()
	if size := t.Size(); dense(j.srcs) && dense(j.dsts) {
		for i := range j.srcs {
			j.ins = append(j.ins, j.srcs[i].Bytes()[lo*size:hi*size])
		}
		for i := range j.dsts {
			j.outs = append(j.outs, j.dsts[i].Bytes()[lo*size:hi*size])
		}
		j.reduceFlat(t, r)
	} else {
		j.dtype, j.reduce, j.base = t, r, lo
		par.For(hi-lo, j.grain(size), j.reduceFn)
	}
	clear(j.srcs)
	clear(j.dsts)
	j.srcs, j.dsts = j.srcs[:0], j.dsts[:0]
}

func dense(b []comm.Buffer) bool {
	for i := range b {
		if !b[i].Contiguous() {
			return false
		}
	}
	return true
}

// grain is the elements of size bytes that are worth handing to another core.
func (j *job) grain(size int) int {
	return max(1, reduceGrain/size/(max(len(j.srcs), len(j.ins))+max(len(j.dsts), len(j.outs))))
}

// reduceFlat reduces ins into outs, all of one length.
func (j *job) reduceFlat(t dtype.DType, r comm.ReduceOp) {
	j.dtype, j.reduce = t, r
	n := len(j.outs[0])
	j.stream = max(n*len(j.outs), j.written) >= streamBytes && !j.inPlace()
	if count, grain := n/t.Size(), j.grain(t.Size()); count <= grain && plain(t, r) {
		simd.SumAllBytes(j.outs, j.ins, t == dtype.BF16, j.stream)
	} else if count <= grain {
		j.reduceWith(j.scratch(), 0, count)
	} else {
		par.For(count, grain, j.denseFn)
	}
	drop(j.ins)
	drop(j.outs)
	j.ins, j.outs = j.ins[:0], j.outs[:0]
}

// inPlace reports whether a result goes where an input is: then it is in a cache already.
func (j *job) inPlace() bool {
	for _, out := range j.outs {
		for _, in := range j.ins {
			if &out[0] == &in[0] {
				return true
			}
		}
	}
	return false
}

// scratch returns the piece of the rank's own goroutine.
func (j *job) scratch() *piece {
	if j.own == nil {
		j.own = new(piece)
	}
	return j.own
}

// reduceDense reduces elements [lo, hi) of ins.
func (j *job) reduceDense(lo, hi int) {
	p := pieces.Get().(*piece)
	j.reduceWith(p, lo, hi)
	pieces.Put(p)
}

func (j *job) reduceWith(p *piece, lo, hi int) {
	size, step := j.dtype.Size(), hi-lo
	if !j.plain() {
		step = min(step, pieceSize)
	}
	for ; lo < hi; lo += step {
		end := min(hi, lo+step)
		for i := range j.ins {
			p.srcs[i] = j.ins[i][lo*size : end*size]
		}
		for i := range j.outs {
			p.dsts[i] = j.outs[i][lo*size : end*size]
		}
		p.reduceTo(p.dsts[:len(j.outs)], p.srcs[:len(j.ins)], j.dtype, j.reduce, j.stream)
	}
	p.forget(len(j.ins), len(j.outs))
}

// plain reports whether the reduction needs no memory of a piece.
func (j *job) plain() bool { return plain(j.dtype, j.reduce) }

func plain(t dtype.DType, r comm.ReduceOp) bool {
	return r == comm.Sum && (t == dtype.F32 || t == dtype.BF16)
}

// reduceRange reduces a range of elements, counted from base, row by row. A piece is read from all inputs before it is
// written to any output, so outputs may be inputs.
func (j *job) reduceRange(lo, hi int) {
	p := pieces.Get().(*piece)
	cols := j.srcs[0].Cols()
	lo, hi = lo+j.base, hi+j.base
	for lo < hi {
		end := min(hi, lo+pieceSize, (lo/cols+1)*cols)
		for i := range j.srcs {
			p.srcs[i] = within(&j.srcs[i], lo, end)
		}
		for i := range j.dsts {
			p.dsts[i] = within(&j.dsts[i], lo, end)
		}
		p.reduceTo(p.dsts[:len(j.dsts)], p.srcs[:len(j.srcs)], j.dtype, j.reduce, false)
		lo = end
	}
	p.forget(len(j.srcs), len(j.dsts))
	pieces.Put(p)
}

// within returns elements [lo, hi) of b, which lie in one row.
func within(b *comm.Buffer, lo, hi int) []byte {
	size := b.DType().Size()
	row, at := lo/b.Cols(), lo%b.Cols()
	return b.RowBytes(row)[at*size : (at+hi-lo)*size]
}
