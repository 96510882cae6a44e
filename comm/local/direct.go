package local

import "github.com/weftgo/weft/comm"

// layout plans a call from this rank's own numbers, once all boxes agree.
func (c *call) layout(p *plan) {
	switch c.op.Kind {
	case comm.AllGather:
		p.equal(c.size, c.op.Parts[0].Src.Rows())
	case comm.ReduceScatter:
		p.equal(c.size, c.op.Parts[0].Dst.Rows())
	case comm.AllGatherV, comm.ReduceScatterV:
		p.ragged(c.send)
	}
}

// workDirect does the share of the rank at pos of a call whose boxes have the addresses.
func (m *meeting) workDirect(turn, pos int, plan *plan, j *job) {
	c := &m.seats[pos].calls[turn]
	if c.op.Kind == comm.Barrier {
		return
	}
	src := &c.op.Parts[0].Src
	own, rb := c.box, int(rowBytes(*src))
	switch c.op.Kind {
	case comm.AllReduce:
		lo, hi := m.slice(*src, pos)
		size := src.DType().Size()
		m.reduceDirect(turn, lo*size, hi*size, j, c, m.boxes[turn])
	case comm.Reduce:
		if pos == c.op.Peer {
			m.reduceDirect(turn, 0, src.Rows()*rb, j, c, m.boxes[turn][pos:pos+1])
		}
	case comm.ReduceScatter, comm.ReduceScatterV:
		lo, hi := plan.offsets[pos]*rb, plan.offsets[pos+1]*rb
		if lo < hi {
			m.inputs(turn, lo, hi, j)
			j.outs = append(j.outs, own.dstAt(0, hi-lo))
			j.reduceFlat(src.DType(), c.op.Reduce)
		}
	case comm.Broadcast:
		if pos != c.op.Peer {
			n := src.Rows() * rb
			j.copyOther(own.dstAt(0, n), m.box(turn, c.op.Peer).srcAt(0, n))
		}
	case comm.AllGather, comm.AllGatherV:
		off := plan.offsets
		for k := range m.seats { // beginning with its own
			i := (pos + k) % len(m.seats)
			lo, hi := off[i]*rb, off[i+1]*rb
			j.copyOther(own.dstAt(lo, hi), m.box(turn, i).srcAt(0, hi-lo))
		}
	case comm.AllToAllV:
		m.exchangeDirect(turn, pos, rb, j)
	case comm.Send:
		n := src.Rows() * rb
		j.copyOther(m.box(turn, 1).dstAt(0, n), own.srcAt(0, n))
	}
}

func (m *meeting) box(turn, pos int) *box { return m.boxes[turn][pos] }

// inputs sets the inputs of a reduction to bytes [lo, hi) of every rank's.
func (m *meeting) inputs(turn, lo, hi int, j *job) {
	for i := range m.seats {
		j.ins = append(j.ins, m.box(turn, i).srcAt(lo, hi))
	}
}

// reduceDirect reduces bytes [lo, hi) of every rank's input into the same of the output of some.
func (m *meeting) reduceDirect(turn, lo, hi int, j *job, c *call, to []*box) {
	if lo == hi {
		return
	}
	m.inputs(turn, lo, hi, j)
	for _, b := range to {
		j.outs = append(j.outs, b.dstAt(lo, hi))
	}
	j.reduceFlat(c.op.Parts[0].Src.DType(), c.op.Reduce)
}

// exchangeDirect copies what every rank sends to the one at pos, beginning with its own.
func (m *meeting) exchangeDirect(turn, pos, rb int, j *job) {
	own, size := m.box(turn, pos), len(m.seats)
	recv := own.counts(2 * size)[size:]
	for k := range size {
		i := (pos + k) % size
		if n := int(recv[i]); n > 0 {
			from, to := m.box(turn, i), sum(recv[:i])*rb
			at := sum(from.counts(size)[:pos]) * rb
			j.copyOther(own.dstAt(to, to+n*rb), from.srcAt(at, at+n*rb))
		}
	}
}

// copyOther copies unless both are the same memory.
func (j *job) copyOther(to, from []byte) {
	if len(from) > 0 && &to[0] != &from[0] {
		j.copyDense(to, from)
	}
}
