package recipe

import (
	"errors"
	"fmt"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/dtype"
	"github.com/weftgo/weft/nccl"
)

// Ragged says how the V forms whose counts differ are made of what NCCL has. Equal counts take one call in each.
type Ragged int

// The ways.
const (
	Grouped  Ragged = iota // one group of broadcasts or reduces, one for each rank that has rows
	Padded                 // one all_gather or reduce_scatter of the largest count, through the workspace
	Messages               // all_gatherv as one group of sends and receives; reduce_scatterv is Grouped
)

// Recipe makes batches for one rank of a group. Its slices are used again, so one goroutine uses it at a time.
type Recipe struct {
	Rank, Ranks int // in the group
	Ragged      Ragged
	Word        uint64 // four bytes of device memory, which barriers add up
	Batch       nccl.Batch

	stage, used uint64
}

// Fill fills the batch for op, whose rows with gaps lie without them in the stage, device memory of size bytes. It returns the bytes
// that the stage must have; when they are more than size, the batch is of no use and Fill is called again with a larger one.
func (p *Recipe) Fill(op *comm.Op, stage, size uint64) (needed uint64) {
	b := &p.Batch
	b.Calls, b.Before, b.After = b.Calls[:0], b.Before[:0], b.After[:0]
	p.stage, p.used = stage, 0
	if op.Kind == comm.Barrier {
		b.Calls = append(b.Calls, nccl.Call{Kind: nccl.AllReduce, Src: p.Word, Dst: p.Word, Count: 1, Type: nccl.Int32})
		return 0
	}
	for i := range op.Parts {
		p.part(op, &op.Parts[i])
	}
	return p.used
}

var errDeviceCounts = errors.New("the counts are on the device, and NCCL takes them from the host; use comm.Host, or the driver p2p")

// Possible says what NCCL cannot do: nil, or an error that the caller makes comm.Unavailable.
func Possible(op *comm.Op) error {
	if op.Kind == comm.AllGatherV || op.Kind == comm.ReduceScatterV || op.Kind == comm.AllToAllV {
		_, ok := op.Send.Host()
		_, ok2 := op.Recv.Host()
		if !ok || op.Kind == comm.AllToAllV && !ok2 {
			return errDeviceCounts
		}
	}
	if !op.Kind.Reduces() || nccl.Version() >= 22400 {
		return nil
	}
	for i := range op.Parts {
		if t := op.Parts[i].Src.DType(); t == dtype.F8E4M3 || t == dtype.F8E5M2 {
			return fmt.Errorf("a reduction of %v: NCCL has it since 2.24, this is %s", t, version())
		}
	}
	return nil
}

func version() string {
	l, _ := nccl.Loaded()
	return l.Version
}

// region gives out n bytes of the stage. Fill says in the end how many were needed.
func (p *Recipe) region(n int64) uint64 {
	at := p.stage + p.used
	p.used += (uint64(n) + 255) &^ 255
	return at
}

// in returns where the rows of b lie without gaps, after the copies before.
func (p *Recipe) in(b comm.Buffer) uint64 {
	if b.Contiguous() || b.Rows() == 0 {
		return uint64(b.Addr())
	}
	at := p.region(b.SizeBytes())
	p.Batch.Before = append(p.Batch.Before, packed2d(at, b, false))
	return at
}

// out returns where the rows of b are to be put without gaps, before the copies after.
func (p *Recipe) out(b comm.Buffer) uint64 {
	if b.Contiguous() || b.Rows() == 0 {
		return uint64(b.Addr())
	}
	at := p.region(b.SizeBytes())
	p.Batch.After = append(p.Batch.After, packed2d(at, b, true))
	return at
}

// packed2d is the copy between b and the same rows without gaps at an address.
func packed2d(at uint64, b comm.Buffer, unpack bool) nccl.RowCopy {
	size := uint64(b.DType().Size())
	width, pitch := uint64(b.Cols())*size, uint64(b.Stride())*size
	if unpack {
		return nccl.RowCopy{Dst: uint64(b.Addr()), DstPitch: pitch, Src: at, SrcPitch: width, Width: width, Rows: uint64(b.Rows())}
	}
	return nccl.RowCopy{Dst: at, DstPitch: width, Src: uint64(b.Addr()), SrcPitch: pitch, Width: width, Rows: uint64(b.Rows())}
}

// add appends a call. What only moves bytes is given as bytes, so that every version moves every type.
func (p *Recipe) add(k nccl.Kind, op *comm.Op, b *comm.Buffer, src, dst uint64, elements, peer int) {
	if elements == 0 {
		return // on all ranks alike
	}
	x := nccl.Call{Kind: k, Src: src, Dst: dst, Count: uint64(elements), Peer: int32(peer)}
	switch k {
	case nccl.AllReduce, nccl.ReduceScatter, nccl.Reduce:
		x.Type, x.Reduce = nccl.TypeOf(b.DType()), nccl.ReductionOf(op.Reduce)
	default:
		x.Type = nccl.Uint8
		x.Count *= uint64(b.DType().Size())
	}
	p.Batch.Calls = append(p.Batch.Calls, x)
}

// part adds one tensor.
func (p *Recipe) part(op *comm.Op, t *comm.Part) {
	src, dst := t.Src, t.Dst
	n := src.Rows() * src.Cols()
	switch op.Kind {
	case comm.AllReduce:
		p.add(nccl.AllReduce, op, &src, p.in(src), p.out(dst), n, 0)
	case comm.AllGather:
		p.add(nccl.AllGather, op, &src, p.in(src), p.out(dst), n, 0)
	case comm.ReduceScatter:
		p.add(nccl.ReduceScatter, op, &src, p.in(src), p.out(dst), dst.Rows()*dst.Cols(), 0)
	case comm.Broadcast:
		p.broadcast(op, src)
	case comm.Reduce:
		to := uint64(0)
		if p.Rank == op.Peer {
			to = p.out(dst)
		}
		p.add(nccl.Reduce, op, &src, p.in(src), to, n, op.Peer)
	case comm.Send:
		p.add(nccl.Send, op, &src, p.in(src), 0, n, op.Peer)
	case comm.Recv:
		p.add(nccl.Recv, op, &dst, 0, p.out(dst), dst.Rows()*dst.Cols(), op.Peer)
	case comm.AllGatherV:
		p.gather(op, src, dst)
	case comm.ReduceScatterV:
		p.scatter(op, src, dst)
	case comm.AllToAllV:
		p.exchange(op, src, dst)
	}
}

func (p *Recipe) broadcast(op *comm.Op, buf comm.Buffer) {
	var at uint64
	if p.Rank == op.Peer {
		at = p.in(buf)
	} else {
		at = p.out(buf)
	}
	p.add(nccl.Broadcast, op, &buf, at, at, buf.Rows()*buf.Cols(), op.Peer)
}

// sums returns the sum and the maximum of counts, and whether all are equal.
func sums(n []int) (sum, most int, equal bool) {
	equal = true
	for _, x := range n {
		sum += x
		most = max(most, x)
		equal = equal && x == n[0]
	}
	return sum, most, equal
}

// at returns the address of a row of tightly packed rows like b's.
func at(base uint64, b *comm.Buffer, row int) uint64 {
	return base + uint64(row)*uint64(b.Cols())*uint64(b.DType().Size())
}

// gather is an all_gatherv: zeros are left out on all ranks, who have the same counts.
func (p *Recipe) gather(op *comm.Op, src, dst comm.Buffer) {
	counts, _ := op.Send.Host()
	total, most, equal := sums(counts)
	own := counts[p.Rank]
	src, dst = src.Slice(0, own), dst.Slice(0, total)
	cols := src.Cols()
	switch {
	case equal:
		p.add(nccl.AllGather, op, &src, p.in(src), p.out(dst), own*cols, 0)
	case p.Ragged == Padded:
		block := int64(most*cols) * int64(src.DType().Size())
		mine := p.region(block)
		all := p.region(block * int64(p.Ranks))
		if own > 0 {
			p.Batch.Before = append(p.Batch.Before, packed2d(mine, src, false))
		}
		p.add(nccl.AllGather, op, &src, mine, all, most*cols, 0)
		row := 0
		for i, n := range counts {
			if n > 0 {
				p.Batch.After = append(p.Batch.After, packed2d(all+uint64(i)*uint64(block), dst.Slice(row, row+n), true))
			}
			row += n
		}
	case p.Ragged == Messages:
		p.messages(op, src, dst, counts)
	default:
		from, to, row := p.in(src), p.out(dst), 0
		for i, n := range counts {
			place := at(to, &dst, row)
			start := place // the root alone reads it
			if i == p.Rank {
				start = from
			}
			p.add(nccl.Broadcast, op, &src, start, place, n*cols, i)
			row += n
		}
	}
}

// messages is an all_gatherv of sends and receives.
func (p *Recipe) messages(op *comm.Op, src, dst comm.Buffer, counts []int) {
	from, to, row, cols := p.in(src), p.out(dst), 0, src.Cols()
	for i, n := range counts {
		place := at(to, &dst, row)
		if i == p.Rank && n > 0 && place != from {
			width := uint64(src.SizeBytes())
			p.Batch.Before = append(p.Batch.Before, nccl.RowCopy{Dst: place, DstPitch: width, Src: from, SrcPitch: width, Width: width, Rows: 1})
		}
		if i != p.Rank {
			p.add(nccl.Send, op, &src, from, 0, src.Rows()*cols, i)
			p.add(nccl.Recv, op, &dst, 0, place, n*cols, i)
		}
		row += n
	}
}

// scatter is a reduce_scatterv.
func (p *Recipe) scatter(op *comm.Op, src, dst comm.Buffer) {
	counts, _ := op.Send.Host()
	total, most, equal := sums(counts)
	own := counts[p.Rank]
	src, dst = src.Slice(0, total), dst.Slice(0, own)
	cols := src.Cols()
	switch {
	case equal:
		p.add(nccl.ReduceScatter, op, &src, p.in(src), p.out(dst), own*cols, 0)
	case p.Ragged == Padded:
		block := int64(most*cols) * int64(src.DType().Size())
		all := p.region(block * int64(p.Ranks))
		mine := p.region(block)
		row := 0
		for i, n := range counts { // what lies behind a block's rows is added up too, and not looked at
			if n > 0 {
				p.Batch.Before = append(p.Batch.Before, packed2d(all+uint64(i)*uint64(block), src.Slice(row, row+n), false))
			}
			row += n
		}
		p.add(nccl.ReduceScatter, op, &src, all, mine, most*cols, 0)
		if own > 0 {
			p.Batch.After = append(p.Batch.After, packed2d(mine, dst, true))
		}
	default:
		from, row := p.in(src), 0
		for i, n := range counts {
			to := uint64(0)
			if i == p.Rank {
				to = p.out(dst)
			}
			p.add(nccl.Reduce, op, &src, at(from, &src, row), to, n*cols, i)
			row += n
		}
	}
}

// exchange is an alltoallv: one group of sends and receives. A rank's own rows are copied.
func (p *Recipe) exchange(op *comm.Op, src, dst comm.Buffer) {
	send, _ := op.Send.Host()
	recv, _ := op.Recv.Host()
	sent, _, _ := sums(send)
	received, _, _ := sums(recv)
	src, dst = src.Slice(0, sent), dst.Slice(0, received)
	from, to, cols := p.in(src), p.out(dst), src.Cols()
	out, in := 0, 0
	for i := range send {
		if i != p.Rank {
			p.add(nccl.Send, op, &src, at(from, &src, out), 0, send[i]*cols, i)
			p.add(nccl.Recv, op, &dst, 0, at(to, &dst, in), recv[i]*cols, i)
		} else if n := min(send[i], recv[i]); n > 0 {
			width := uint64(n*cols) * uint64(src.DType().Size())
			p.Batch.Before = append(p.Batch.Before, nccl.RowCopy{Dst: at(to, &dst, in), DstPitch: width, Src: at(from, &src, out), SrcPitch: width, Width: width, Rows: 1})
		}
		out += send[i]
		in += recv[i]
	}
}

// SentBytes is what this rank's share of an operation moves between two different ranks. Over all ranks an all_reduce of S
// bytes adds up to 2(P-1)S, the gathering and scattering forms, broadcast and reduce to (P-1)S.
func (p *Recipe) SentBytes(op *comm.Op) (sum int64) {
	others := int64(p.Ranks - 1)
	for i := range op.Parts {
		src, dst := &op.Parts[i].Src, &op.Parts[i].Dst
		row := int64(src.Cols()) * int64(src.DType().Size())
		switch op.Kind {
		case comm.AllReduce:
			n := src.Rows() * src.Cols()
			sum += 2 * others * int64(n*(p.Rank+1)/p.Ranks-n*p.Rank/p.Ranks) * int64(src.DType().Size())
		case comm.Reduce, comm.Broadcast:
			if p.Rank != op.Peer {
				sum += src.SizeBytes()
			}
		case comm.AllGather:
			sum += others * src.SizeBytes()
		case comm.ReduceScatter:
			sum += others * dst.SizeBytes()
		case comm.AllGatherV, comm.ReduceScatterV:
			counts, _ := op.Send.Host()
			sum += others * int64(counts[p.Rank]) * row
		case comm.AllToAllV:
			send, _ := op.Send.Host()
			for j, n := range send {
				if j != p.Rank {
					sum += int64(n) * row
				}
			}
		case comm.Send:
			sum += src.SizeBytes()
		}
	}
	return sum
}
