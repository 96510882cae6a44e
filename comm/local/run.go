package local

import (
	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/dtype"
)

func copyRows(dst, src comm.Buffer) {
	for i := range src.Rows() {
		copy(dst.RowBytes(i), src.RowBytes(i))
	}
}

// run does the operation of all ranks.
func (r *round) run() {
	first := r.ops[0]
	for i, op := range r.ops {
		if op.Signature() != first.Signature() {
			for j := range r.errs {
				r.errs[j] = comm.Errorf(r.ops[j].String(), j, comm.Invalid, "ranks disagree: rank 0 calls %v, rank %d calls %v", first, i, op)
			}
			return
		}
	}
	n := len(r.ops)
	for p := range first.Parts {
		switch first.Kind {
		case comm.AllReduce, comm.Reduce:
			src := make([]comm.Buffer, n)
			for i := range src {
				src[i] = r.ops[i].Parts[p].Src
			}
			out := reduceAll(src, first.Reduce)
			for i, op := range r.ops {
				if first.Kind == comm.AllReduce || i == first.Peer {
					store(op.Parts[p].Dst, out)
				}
			}
		case comm.Broadcast:
			for i, op := range r.ops {
				if i != first.Peer {
					copyRows(op.Parts[p].Dst, r.ops[first.Peer].Parts[p].Src)
				}
			}
		case comm.AllGather, comm.AllGatherV:
			counts := r.counts(p)
			tmp := make([]comm.Buffer, n)
			for i, op := range r.ops {
				s := op.Parts[p].Src.Slice(0, counts[i])
				raw := make([]byte, s.SizeBytes())
				b := comm.Of(raw2(raw), s.Cols()*s.DType().Size())
				for k := range s.Rows() {
					copy(b.RowBytes(k), s.RowBytes(k))
				}
				tmp[i] = b
			}
			for _, op := range r.ops {
				at := 0
				for i := range tmp {
					for k := range tmp[i].Rows() {
						copy(op.Parts[p].Dst.RowBytes(at), tmp[i].RowBytes(k))
						at++
					}
				}
			}
		case comm.ReduceScatter, comm.ReduceScatterV:
			counts := r.counts(p)
			sum := 0
			for _, c := range counts {
				sum += c
			}
			src := make([]comm.Buffer, n)
			for i := range src {
				src[i] = r.ops[i].Parts[p].Src.Slice(0, sum)
			}
			out := reduceAll(src, first.Reduce)
			at := 0
			cols := src[0].Cols()
			for i, op := range r.ops {
				store(op.Parts[p].Dst.Slice(0, counts[i]), out[at*cols:(at+counts[i])*cols])
				at += counts[i]
			}
		case comm.AllToAllV:
			m := make([][]int, n)
			for i, op := range r.ops {
				m[i] = ownCounts(op.Send, n)
			}
			for j, op := range r.ops {
				at := 0
				for i := range n {
					off := 0
					for k := range j {
						off += m[i][k]
					}
					for k := range m[i][j] {
						copy(op.Parts[p].Dst.RowBytes(at), r.ops[i].Parts[p].Src.RowBytes(off+k))
						at++
					}
				}
				if _, host := op.Recv.Host(); !host {
					_, all, _ := op.Recv.Device()
					for i := range n {
						comm.Row[int32](all, 0)[i] = int32(m[i][j])
					}
				}
			}
		}
	}
}

func raw2(b []byte) []uint8 { return b }

func ownCounts(c comm.Counts, n int) []int {
	if h, ok := c.Host(); ok {
		return h
	}
	own, _, _ := c.Device()
	x := make([]int, n)
	for i := range x {
		x[i] = int(comm.Row[int32](own, 0)[i])
	}
	return x
}

func (r *round) counts(p int) []int {
	n := len(r.ops)
	out := make([]int, n)
	for i, op := range r.ops {
		switch op.Kind {
		case comm.AllGather:
			out[i] = op.Parts[p].Src.Rows()
		case comm.ReduceScatter:
			out[i] = op.Parts[p].Dst.Rows()
		default:
			if h, ok := op.Send.Host(); ok {
				copy(out, h)
				return out
			}
			own, _, _ := op.Send.Device()
			out[i] = int(comm.Row[int32](own, 0)[0])
		}
	}
	for _, op := range r.ops {
		if _, all, _ := op.Send.Device(); !all.IsZero() {
			for i := range n {
				comm.Row[int32](all, 0)[i] = int32(out[i])
			}
		}
	}
	return out
}

// reduceAll returns the reduction as float32 (integers up to 2^24 exact).
func reduceAll(src []comm.Buffer, r comm.ReduceOp) []float32 {
	rows, cols := src[0].Rows(), src[0].Cols()
	out := make([]float32, rows*cols)
	row := make([]float32, cols)
	for i, s := range src {
		for k := range rows {
			_ = dtype.Float32s(row, s.RowBytes(k), s.DType())
			o := out[k*cols : (k+1)*cols]
			for j, v := range row {
				switch {
				case r == comm.Sum || r == comm.Avg:
					o[j] += v
				case i == 0:
					o[j] = v
				case r == comm.Prod:
					o[j] *= v
				case r == comm.Min:
					o[j] = min(o[j], v)
				case r == comm.Max:
					o[j] = max(o[j], v)
				}
			}
		}
	}
	if r == comm.Avg {
		for j := range out {
			out[j] /= float32(len(src))
		}
	}
	return out
}

func store(dst comm.Buffer, x []float32) {
	cols := dst.Cols()
	for k := range dst.Rows() {
		_ = dtype.FromFloat32s(dst.RowBytes(k), x[k*cols:(k+1)*cols], dst.DType())
	}
}
