package staged

import (
	"github.com/weftgo/weft/comm"
)

// halves says which rows of a part go to the device and which come back. Rows of a destination whose number only the device
// will know are the most that can come; see [pass.known].
func (c *conn) halves(op *comm.Op, p *comm.Part, w *window) (src, dst half) {
	in := func(segments, rows int, moved bool) { src = newHalf(p.Src, segments, rows, moved, w) }
	out := func(segments, rows int) { dst = newHalf(p.Dst, segments, rows, true, w) }
	r := p.Src.Rows()
	switch op.Kind {
	case comm.AllReduce:
		in(1, r, true)
		out(1, r)
	case comm.Reduce:
		in(1, r, true)
		if c.rank == op.Peer {
			out(1, r)
		}
	case comm.Broadcast:
		in(1, r, c.rank == op.Peer)
		out(1, r)
		dst.moved = c.rank != op.Peer
	case comm.Send:
		in(1, r, true)
	case comm.Recv:
		out(1, p.Dst.Rows())
	case comm.AllGather:
		in(1, r, true)
		out(c.size, r)
	case comm.ReduceScatter:
		in(c.size, p.Dst.Rows(), true)
		out(1, p.Dst.Rows())
	default:
		rowsIn, rowsOut := c.raggedRows(op)
		in(1, min(rowsIn, r), true)
		out(1, min(rowsOut, p.Dst.Rows()))
	}
	return src, dst
}

// raggedRows returns the rows of sources and destinations by the counts, or the most that there can be. A count that is out of
// range adds nothing: the driver refuses it before it reads a row.
func (c *conn) raggedRows(op *comm.Op) (in, out int) {
	host, isHost := op.Send.Host()
	own, most := 0, 0
	if isHost {
		in = sum(host)
		own = host[c.rank]
	} else {
		n, _, limit := op.Send.Device()
		for _, v := range values(n) {
			in += max(0, int(v))
		}
		own, most = in, limit*c.size
	}
	switch op.Kind {
	case comm.AllGatherV:
		if isHost {
			return own, in
		}
		return own, most
	case comm.ReduceScatterV:
		if isHost {
			return in, own
		}
		return most, own
	}
	if recv, ok := op.Recv.Host(); ok { // AllToAllV
		return in, sum(recv)
	}
	_, _, limit := op.Recv.Device()
	return in, limit * c.size
}

// common returns the bytes that a call may need on any rank, as far as all ranks know them, so that all cut it alike: -1
// where only two ranks do. Of a ragged part, rows is what one column takes, which cannot be cut.
func (c *conn) common(op *comm.Op, p *comm.Part) (bytes, rows int) {
	r := p.Src.Rows()
	switch op.Kind {
	case comm.AllReduce, comm.Reduce, comm.Broadcast:
		rows = 2 * r
	case comm.AllGather:
		rows = (c.size + 1) * r
	case comm.ReduceScatter:
		rows = (c.size + 1) * p.Dst.Rows()
	case comm.AllGatherV, comm.ReduceScatterV:
		if host, ok := op.Send.Host(); ok {
			for _, n := range host {
				rows = max(rows, n)
			}
			rows += sum(host)
		} else {
			_, _, limit := op.Send.Device()
			rows = (c.size + 1) * limit
		}
	default:
		return -1, 0
	}
	return rows * p.Src.Cols() * p.Src.DType().Size(), rows
}

func sum(n []int) (total int) {
	for _, x := range n {
		total += x
	}
	return total
}

// values views counts, which comm.Comm has validated: int32, on the host, without a gap.
func values(b comm.Buffer) []int32 {
	v, err := comm.View[int32](b)
	if err != nil {
		panic(err)
	}
	return v
}
