package nodes

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/dtype"
)

// question is one operation on a world of all ranks.
type question struct {
	kind   comm.OpKind
	typ    dtype.DType
	reduce comm.ReduceOp
	counts []int // rows per rank; the uniform forms use counts[0]
	cols   int
	gap    int
	root   int
}

func total(n []int) (s int) {
	for _, v := range n {
		s += v
	}
	return s
}

// rows are those that rank i gives and gets.
func (q question) rows(i int) (src, dst int) {
	size, n := len(q.counts), q.counts[0]
	switch q.kind {
	case comm.AllGather:
		return n, n * size
	case comm.ReduceScatter:
		return n * size, n
	case comm.AllGatherV:
		return q.counts[i], total(q.counts)
	case comm.ReduceScatterV:
		return total(q.counts), q.counts[i]
	}
	return n, n
}

// input is values whose sums depend on the order, as the type holds them.
func (q question) input(i int) []float32 {
	rows, _ := q.rows(i)
	rng := rand.New(rand.NewPCG(uint64(i)+1, uint64(q.kind)))
	f := make([]float32, rows*q.cols)
	for k := range f {
		f[k] = float32(math.Exp2(10*rng.Float64()-5) * float64(1-2*rng.IntN(2)))
	}
	return round(f, q.typ)
}

// round returns the values as the type holds them.
func round(f []float32, typ dtype.DType) []float32 {
	raw := make([]byte, len(f)*typ.Size())
	if err := dtype.FromFloat32s(raw, f, typ); err != nil {
		panic(err)
	}
	out := make([]float32, len(f))
	if err := dtype.Float32s(out, raw, typ); err != nil {
		panic(err)
	}
	return out
}

// add is one level: fp32 in order from +0, rounded once; or the other reductions.
func (q question) add(inputs [][]float32) []float32 {
	out := make([]float32, len(inputs[0]))
	for k := range out {
		acc := float32(0)
		for i, x := range inputs {
			switch {
			case q.reduce == comm.Sum || q.reduce == comm.Avg:
				acc = float32(acc + x[k])
			case i == 0:
				acc = x[k]
			case q.reduce == comm.Max:
				acc = max(acc, x[k])
			case q.reduce == comm.Min:
				acc = min(acc, x[k])
			case q.reduce == comm.Prod:
				acc = float32(acc * x[k])
			}
		}
		if q.reduce == comm.Avg {
			acc = float32(acc / float32(len(inputs)))
		}
		out[k] = acc
	}
	return round(out, q.typ)
}

// twin is the two-level order in Go: what every rank's sum of all inputs is.
func (q question) twin(nodes, ranks int) []float32 {
	partials := make([][]float32, nodes)
	for n := range partials {
		inputs := make([][]float32, ranks)
		for i := range inputs {
			inputs[i] = q.input(n*ranks + i)
		}
		partials[n] = q.add(inputs)
	}
	return q.add(partials)
}

// want is what rank i must get.
func (q question) want(i, nodes, ranks int) []float32 {
	switch q.kind {
	case comm.AllReduce:
		return q.twin(nodes, ranks)
	case comm.Reduce:
		if i == q.root {
			return q.twin(nodes, ranks)
		}
		return nil
	case comm.ReduceScatter:
		n := q.counts[0] * q.cols
		return q.twin(nodes, ranks)[i*n : (i+1)*n]
	case comm.ReduceScatterV:
		at := total(q.counts[:i]) * q.cols
		return q.twin(nodes, ranks)[at : at+q.counts[i]*q.cols]
	case comm.Broadcast:
		return q.input(q.root)
	}
	var all []float32
	for k := range nodes * ranks {
		all = append(all, q.input(k)...)
	}
	return all
}

// ask runs it on one rank.
func (q question) ask(ctx context.Context, c *comm.Comm) ([]float32, error) {
	alloc := func(rows int) comm.Buffer {
		b, err := comm.Alloc(c, q.typ, rows, q.cols+q.gap)
		if err != nil {
			panic(err)
		}
		return b.Columns(q.gap/2, q.gap/2+q.cols)
	}
	nsrc, ndst := q.rows(c.Rank())
	src, dst := alloc(nsrc), alloc(ndst)
	raw := make([]byte, nsrc*q.cols*q.typ.Size())
	if err := dtype.FromFloat32s(raw, q.input(c.Rank()), q.typ); err != nil {
		return nil, err
	}
	if err := comm.Copy(c, comm.Stream{}, src, comm.OfBytes(raw, q.typ, nsrc, q.cols)); err != nil {
		return nil, err
	}
	op := comm.Op{Kind: q.kind, Reduce: q.reduce, Peer: q.root, Send: comm.Host(q.counts), Parts: []comm.Part{{Dst: dst, Src: src}}}
	if q.kind == comm.Broadcast {
		op.Parts[0].Dst, dst = src, src
	}
	if q.kind == comm.Reduce && c.Rank() != q.root {
		op.Parts[0].Dst = comm.Buffer{}
	}
	if err := errors.Join(c.Do(comm.Stream{}, &op), c.Wait(ctx, comm.Stream{})); err != nil {
		return nil, err
	}
	if q.kind == comm.Reduce && c.Rank() != q.root {
		return nil, nil
	}
	out := make([]byte, ndst*q.cols*q.typ.Size())
	if err := comm.Copy(c, comm.Stream{}, comm.OfBytes(out, q.typ, ndst, q.cols), dst); err != nil {
		return nil, err
	}
	f := make([]float32, ndst*q.cols)
	return f, dtype.Float32s(f, out, q.typ)
}

// questions are all kinds, with sizes that do not divide, gaps and zeros.
func questions(size int) []question {
	equal, ragged, last := make([]int, size), make([]int, size), make([]int, size)
	for i := range size {
		equal[i], ragged[i] = 3, []int{2, 0, 5, 1, 0, 0, 3}[i%7]
	}
	last[size-1] = 2
	var list []question
	for k := comm.AllReduce; k <= comm.Reduce; k++ {
		if k == comm.AllToAllV {
			continue
		}
		for _, counts := range [][]int{equal, ragged, last, make([]int, size)} {
			for _, typ := range []dtype.DType{dtype.F32, dtype.BF16} {
				q := question{kind: k, typ: typ, counts: counts, cols: 8, root: size - 2}
				list = append(list, q)
				q.cols, q.gap, q.root = 5, 3, 0
				list = append(list, q)
			}
			if k != comm.AllGatherV && k != comm.ReduceScatterV {
				break
			}
		}
	}
	for _, r := range []comm.ReduceOp{comm.Prod, comm.Min, comm.Max, comm.Avg} {
		list = append(list, question{kind: comm.AllReduce, typ: dtype.F32, reduce: r, counts: equal, cols: 7})
	}
	return list
}
