package nccl

import (
	"errors"
	"fmt"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/dtype"
)

// plan is one operation in NCCL's words: rows with gaps are packed into the rank's stage, then a group of calls, then rows
// are unpacked. Its slices are used again.
type plan struct {
	calls         []Call
	before, after []rowCopy
	stage         uint64 // where the stage begins
	used, size    uint64
	rank, ranks   int
	ragged        Ragged
}

// make fills the plan for op.
func (p *plan) make(c *conn, op *comm.Op) error {
	p.rank, p.ranks, p.ragged = c.rank, len(c.g.members), c.w.cfg.Ragged
	if err := p.possible(op); err != nil {
		return &comm.Error{Op: op.Label(), Rank: c.r.index, Peer: comm.NoPeer, Code: comm.Unavailable, Err: err}
	}
	for {
		p.calls, p.before, p.after = p.calls[:0], p.before[:0], p.after[:0]
		p.stage, p.size, p.used = uint64(c.r.stage.addr), uint64(c.r.stage.size), 0
		if op.Kind == comm.Barrier {
			p.calls = append(p.calls, Call{Kind: AllReduce, Src: uint64(c.r.word), Dst: uint64(c.r.word), Count: 1, Type: Int32})
			return nil
		}
		for i := range op.Parts {
			p.part(op, &op.Parts[i])
		}
		if p.used <= p.size {
			return nil
		}
		// The old stage may be in use by what was enqueued, so it is kept until the world closes.
		b, err := c.r.pool.take(int(2 * p.used))
		if err != nil {
			return c.fail(op.Label(), fmt.Errorf("a workspace of %d bytes for rows with gaps: %w", 2*p.used, err))
		}
		c.r.stage = b
	}
}

var errDeviceCounts = errors.New("the counts are on the device, and NCCL takes them from the host; use comm.Host, or the driver p2p")

// possible says what NCCL cannot do.
func (p *plan) possible(op *comm.Op) error {
	if op.Kind == comm.AllGatherV || op.Kind == comm.ReduceScatterV || op.Kind == comm.AllToAllV {
		_, ok := op.Send.Host()
		_, ok2 := op.Recv.Host()
		if !ok || op.Kind == comm.AllToAllV && !ok2 {
			return errDeviceCounts
		}
	}
	if !op.Kind.Reduces() || loaded.version >= 22400 {
		return nil
	}
	for i := range op.Parts {
		if t := op.Parts[i].Src.DType(); t == dtype.F8E4M3 || t == dtype.F8E5M2 {
			return fmt.Errorf("a reduction of %v: NCCL has it since 2.24, this is %s", t, versionText(loaded.version))
		}
	}
	return nil
}

// region gives out n bytes of the stage. The caller looks at used against size in the end.
func (p *plan) region(n int64) uint64 {
	at := p.stage + p.used
	p.used += (uint64(n) + 255) &^ 255
	return at
}

// in returns where the rows of b lie without gaps, after the copies before.
func (p *plan) in(b comm.Buffer) uint64 {
	if b.Contiguous() || b.Rows() == 0 {
		return uint64(b.Addr())
	}
	at := p.region(b.SizeBytes())
	p.before = append(p.before, packed2d(at, b, false))
	return at
}

// out returns where the rows of b are to be put without gaps, before the copies after.
func (p *plan) out(b comm.Buffer) uint64 {
	if b.Contiguous() || b.Rows() == 0 {
		return uint64(b.Addr())
	}
	at := p.region(b.SizeBytes())
	p.after = append(p.after, packed2d(at, b, true))
	return at
}

// packed2d is the copy between b and the same rows without gaps at an address.
func packed2d(at uint64, b comm.Buffer, unpack bool) rowCopy {
	size := uint64(b.DType().Size())
	width, pitch := uint64(b.Cols())*size, uint64(b.Stride())*size
	if unpack {
		return rowCopy{dst: uint64(b.Addr()), dstPitch: pitch, src: at, srcPitch: width, width: width, rows: uint64(b.Rows())}
	}
	return rowCopy{dst: at, dstPitch: width, src: uint64(b.Addr()), srcPitch: pitch, width: width, rows: uint64(b.Rows())}
}

// add appends a call. What only moves bytes is given as bytes, so that every version moves every type.
func (p *plan) add(k Kind, op *comm.Op, b *comm.Buffer, src, dst uint64, elements, peer int) {
	if elements == 0 {
		return // on all ranks alike
	}
	x := Call{Kind: k, Src: src, Dst: dst, Count: uint64(elements), Peer: int32(peer)}
	switch k {
	case AllReduce, ReduceScatter, Reduce:
		x.Type, x.Reduce = TypeOf(b.DType()), ReductionOf(op.Reduce)
	default:
		x.Type = Uint8
		x.Count *= uint64(b.DType().Size())
	}
	p.calls = append(p.calls, x)
}

// part adds one tensor.
func (p *plan) part(op *comm.Op, t *comm.Part) {
	src, dst := t.Src, t.Dst
	n := src.Rows() * src.Cols()
	switch op.Kind {
	case comm.AllReduce:
		p.add(AllReduce, op, &src, p.in(src), p.out(dst), n, 0)
	case comm.AllGather:
		p.add(AllGather, op, &src, p.in(src), p.out(dst), n, 0)
	case comm.ReduceScatter:
		p.add(ReduceScatter, op, &src, p.in(src), p.out(dst), dst.Rows()*dst.Cols(), 0)
	case comm.Broadcast:
		p.broadcast(op, src)
	case comm.Reduce:
		to := uint64(0)
		if p.rank == op.Peer {
			to = p.out(dst)
		}
		p.add(Reduce, op, &src, p.in(src), to, n, op.Peer)
	case comm.Send:
		p.add(Send, op, &src, p.in(src), 0, n, op.Peer)
	case comm.Recv:
		p.add(Recv, op, &dst, 0, p.out(dst), dst.Rows()*dst.Cols(), op.Peer)
	case comm.AllGatherV:
		p.gather(op, src, dst)
	case comm.ReduceScatterV:
		p.scatter(op, src, dst)
	case comm.AllToAllV:
		p.exchange(op, src, dst)
	}
}

func (p *plan) broadcast(op *comm.Op, buf comm.Buffer) {
	var at uint64
	if p.rank == op.Peer {
		at = p.in(buf)
	} else {
		at = p.out(buf)
	}
	p.add(Broadcast, op, &buf, at, at, buf.Rows()*buf.Cols(), op.Peer)
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
func (p *plan) gather(op *comm.Op, src, dst comm.Buffer) {
	counts, _ := op.Send.Host()
	total, most, equal := sums(counts)
	own := counts[p.rank]
	src, dst = src.Slice(0, own), dst.Slice(0, total)
	cols := src.Cols()
	switch {
	case equal:
		p.add(AllGather, op, &src, p.in(src), p.out(dst), own*cols, 0)
	case p.ragged == Padded:
		block := int64(most*cols) * int64(src.DType().Size())
		mine := p.region(block)
		all := p.region(block * int64(p.ranks))
		if own > 0 {
			p.before = append(p.before, packed2d(mine, src, false))
		}
		p.add(AllGather, op, &src, mine, all, most*cols, 0)
		row := 0
		for i, n := range counts {
			if n > 0 {
				p.after = append(p.after, packed2d(all+uint64(i)*uint64(block), dst.Slice(row, row+n), true))
			}
			row += n
		}
	case p.ragged == Messages:
		p.messages(op, src, dst, counts)
	default:
		from, to, row := p.in(src), p.out(dst), 0
		for i, n := range counts {
			place := at(to, &dst, row)
			start := place // the root alone reads it
			if i == p.rank {
				start = from
			}
			p.add(Broadcast, op, &src, start, place, n*cols, i)
			row += n
		}
	}
}

// messages is an all_gatherv of sends and receives.
func (p *plan) messages(op *comm.Op, src, dst comm.Buffer, counts []int) {
	from, to, row, cols := p.in(src), p.out(dst), 0, src.Cols()
	for i, n := range counts {
		place := at(to, &dst, row)
		if i == p.rank && n > 0 && place != from {
			width := uint64(src.SizeBytes())
			p.before = append(p.before, rowCopy{dst: place, dstPitch: width, src: from, srcPitch: width, width: width, rows: 1})
		}
		if i != p.rank {
			p.add(Send, op, &src, from, 0, src.Rows()*cols, i)
			p.add(Recv, op, &dst, 0, place, n*cols, i)
		}
		row += n
	}
}

// scatter is a reduce_scatterv.
func (p *plan) scatter(op *comm.Op, src, dst comm.Buffer) {
	counts, _ := op.Send.Host()
	total, most, equal := sums(counts)
	own := counts[p.rank]
	src, dst = src.Slice(0, total), dst.Slice(0, own)
	cols := src.Cols()
	switch {
	case equal:
		p.add(ReduceScatter, op, &src, p.in(src), p.out(dst), own*cols, 0)
	case p.ragged == Padded:
		block := int64(most*cols) * int64(src.DType().Size())
		all := p.region(block * int64(p.ranks))
		mine := p.region(block)
		row := 0
		for i, n := range counts { // what lies behind a block's rows is added up too, and not looked at
			if n > 0 {
				p.before = append(p.before, packed2d(all+uint64(i)*uint64(block), src.Slice(row, row+n), false))
			}
			row += n
		}
		p.add(ReduceScatter, op, &src, all, mine, most*cols, 0)
		if own > 0 {
			p.after = append(p.after, packed2d(mine, dst, true))
		}
	default:
		from, row := p.in(src), 0
		for i, n := range counts {
			to := uint64(0)
			if i == p.rank {
				to = p.out(dst)
			}
			p.add(Reduce, op, &src, at(from, &src, row), to, n*cols, i)
			row += n
		}
	}
}

// exchange is an alltoallv: one group of sends and receives. A rank's own rows are copied.
func (p *plan) exchange(op *comm.Op, src, dst comm.Buffer) {
	send, _ := op.Send.Host()
	recv, _ := op.Recv.Host()
	sent, _, _ := sums(send)
	received, _, _ := sums(recv)
	src, dst = src.Slice(0, sent), dst.Slice(0, received)
	from, to, cols := p.in(src), p.out(dst), src.Cols()
	out, in := 0, 0
	for i := range send {
		if i != p.rank {
			p.add(Send, op, &src, at(from, &src, out), 0, send[i]*cols, i)
			p.add(Recv, op, &dst, 0, at(to, &dst, in), recv[i]*cols, i)
		} else if n := min(send[i], recv[i]); n > 0 {
			width := uint64(n*cols) * uint64(src.DType().Size())
			p.before = append(p.before, rowCopy{dst: at(to, &dst, in), dstPitch: width, src: at(from, &src, out), srcPitch: width, width: width, rows: 1})
		}
		out += send[i]
		in += recv[i]
	}
}

// sentBytes is what this rank's share of an operation moves between two different ranks. Over all ranks an all_reduce of S
// bytes adds up to 2(P-1)S, the gathering and scattering forms, broadcast and reduce to (P-1)S.
func (p *plan) sentBytes(op *comm.Op) (sum int64) {
	others := int64(p.ranks - 1)
	for i := range op.Parts {
		src, dst := &op.Parts[i].Src, &op.Parts[i].Dst
		row := int64(src.Cols()) * int64(src.DType().Size())
		switch op.Kind {
		case comm.AllReduce:
			n := src.Rows() * src.Cols()
			sum += 2 * others * int64(n*(p.rank+1)/p.ranks-n*p.rank/p.ranks) * int64(src.DType().Size())
		case comm.Reduce, comm.Broadcast:
			if p.rank != op.Peer {
				sum += src.SizeBytes()
			}
		case comm.AllGather:
			sum += others * src.SizeBytes()
		case comm.ReduceScatter:
			sum += others * dst.SizeBytes()
		case comm.AllGatherV, comm.ReduceScatterV:
			counts, _ := op.Send.Host()
			sum += others * int64(counts[p.rank]) * row
		case comm.AllToAllV:
			send, _ := op.Send.Host()
			for j, n := range send {
				if j != p.rank {
					sum += int64(n) * row
				}
			}
		case comm.Send:
			sum += src.SizeBytes()
		}
	}
	return sum
}
