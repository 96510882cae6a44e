package suite

import (
	"github.com/weftgo/weft/comm"
)

// call is one rank's arguments of one cell, made before the clock starts.
type call struct {
	stream             comm.Stream
	rank, size         int
	shape              Shape
	dst, src           comm.Buffer
	counts, send, recv comm.Counts
	redop              comm.ReduceOp
	root               int
	parts              [1]comm.Part // a field, so that passing it allocates nothing
}

// arena is one rank's memory for all cells of a Bench.
type arena struct{ send, recv comm.Buffer }

// arrange makes the call of a rank: buffers [elements, 1] cut from its arena.
func (b *Bench) arrange(c *comm.Comm, shape Shape, inPlace bool) *call {
	r, a := c.Rank(), b.arenas[c.Rank()]
	x := &call{rank: r, size: c.Size(), shape: shape, redop: b.Redop, root: b.Root}
	x.src = a.send.Slice(b.Unalign, b.Unalign+shape.Send[r])
	x.dst = a.recv.Slice(b.Unalign, b.Unalign+shape.Recv[r])
	if inPlace {
		own := before(shape.Counts, min(r, len(shape.Counts)))
		switch {
		case shape.Counts == nil: // the same elements in and out
			x.src = x.dst
		case b.Op.Reduces: // the result is this rank's part of the input
			x.dst = x.src.Slice(own, own+shape.Counts[r])
		default: // the input is this rank's part of the result
			x.src = x.dst.Slice(own, own+shape.Counts[r])
		}
	}
	if shape.Counts != nil {
		x.counts = comm.Host(shape.Counts)
	}
	if shape.Matrix != nil {
		from := make([]int, c.Size())
		for i, row := range shape.Matrix {
			from[i] = row[r]
		}
		x.send, x.recv = comm.Host(shape.Matrix[r]), comm.Host(from)
	}
	x.parts[0] = comm.Part{Dst: x.dst, Src: x.src}
	return x
}

// load puts the rank's input in place and poison where the result goes.
func (x *call) load(p *Pattern) {
	if x.src.IsZero() || x.dst.IsZero() {
		return
	}
	poison(x.dst)
	if x.src.Rows() > 0 {
		p.Input(x.rank).write(x.src.Bytes(), 0)
	}
}

// poison fills memory with what no result holds: NaN in most types, -1 in integers.
func poison(b comm.Buffer) {
	if b.Rows() == 0 {
		return
	}
	data := b.Bytes()
	for i := range data {
		data[i] = 0xff
	}
}

// wrong counts the elements of the result that are not what the operation must give.
func (x *call) wrong(op *Operation, p *Pattern) (count int64) {
	for _, want := range op.wants(x, p) {
		if want.n > 0 {
			count += want.values.wrong(x.dst.Slice(want.at, want.at+want.n).Bytes(), want.start)
		}
	}
	return count
}
