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
		lo, hi := m.span(plan.offsets, rb, pos)
		j.written = hi - lo
		for i := range m.seats {
			begin := plan.offsets[i] * rb
			if lo, hi := max(lo, begin), min(hi, plan.offsets[i+1]*rb); lo < hi {
				m.inputs(turn, lo, hi, j)
				j.outs = append(j.outs, m.box(turn, i).dstAt(lo-begin, hi-begin))
				j.reduceFlat(src.DType(), c.op.Reduce)
			}
		}
		j.written = 0
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

// exchangeDirect copies what every rank sends to the one at pos, or, of a large exchange, an even part of everything.
func (m *meeting) exchangeDirect(turn, pos, rb int, j *job) {
	size := len(m.seats)
	var offsets [maxBoxed + 1]int // of what each rank receives
	for i := range size {
		offsets[i+1] = offsets[i] + sum(m.box(turn, i).counts(2 * size)[size:])
	}
	first, last := m.span(offsets[:size+1], rb, pos)
	for to := range size {
		lo, hi := max(first, offsets[to]*rb), min(last, offsets[to+1]*rb)
		if lo < hi {
			m.receiveDirect(turn, to, lo-offsets[to]*rb, hi-offsets[to]*rb, rb, j)
		}
	}
}

// receiveDirect copies bytes [lo, hi) of what a rank receives.
func (m *meeting) receiveDirect(turn, to, lo, hi, rb int, j *job) {
	own, size := m.box(turn, to), len(m.seats)
	recv := own.counts(2 * size)[size:]
	for k := range size { // beginning with what it sends itself
		i := (to + k) % size
		begin := sum(recv[:i]) * rb
		if lo, hi := max(lo, begin), min(hi, begin+int(recv[i])*rb); lo < hi {
			from := m.box(turn, i)
			at := sum(from.counts(size)[:to])*rb - begin
			j.copyOther(own.dstAt(lo, hi), from.srcAt(at+lo, at+hi))
		}
	}
}

// evenBytes is what a call must move for its ranks to share the work evenly, whoever gets the results.
const evenBytes = 24 << 10

// span returns the bytes that are the work of the rank at pos, of results that follow each other by rank in rows
// [offsets[i], offsets[i+1]): its own, or an even part if they are many and one rank has more than its share.
func (m *meeting) span(offsets []int, rb, pos int) (lo, hi int) {
	size := len(m.seats)
	total, most := offsets[size], 0
	for i := range size {
		most = max(most, offsets[i+1]-offsets[i])
	}
	if m.led || total*rb < evenBytes || most*size <= total+total/16 {
		return offsets[pos] * rb, offsets[pos+1] * rb
	}
	return cut(offsets, rb, size, pos), cut(offsets, rb, size, pos+1)
}

// cut returns where the part of the rank at pos begins: at a whole cache line of the result it is in.
func cut(offsets []int, rb, size, pos int) int {
	if pos == size {
		return offsets[size] * rb
	}
	at := offsets[size] * pos / size * rb
	for i := range size {
		if begin := offsets[i] * rb; begin <= at && at < offsets[i+1]*rb {
			return begin + (at-begin)/lineBytes*lineBytes
		}
	}
	return at
}

// copyOther copies unless both are the same memory.
func (j *job) copyOther(to, from []byte) {
	if len(from) > 0 && &to[0] != &from[0] {
		j.copyDense(to, from)
	}
}
