package local

import (
	"github.com/weftgo/weft/comm"
)

// wholeBytes is the most bytes, read and written over all ranks, of a call that one rank does alone. See
// BenchmarkCollectives.
const wholeBytes = 32 << 10

// lineBytes is a cache line: the shares of an all-reduce are whole ones, so that two ranks rarely write the same.
const lineBytes = 64

// cost is the bytes of a call that decide who does it.
func (m *meeting) cost(turn int, plan *plan) int64 {
	c := &m.seats[0].calls[turn]
	if len(c.op.Parts) == 0 {
		return 0
	}
	var sum int64
	for i := range c.op.Parts {
		p := &c.op.Parts[i]
		rowBytes := rowBytes(p.Src)
		switch c.op.Kind {
		case comm.AllReduce, comm.Reduce, comm.Broadcast, comm.Send:
			sum += int64(p.Src.Rows()) * rowBytes
		case comm.AllToAllV:
			rows := 0
			for i := range m.seats {
				rows += m.rowsSent(turn, i, plan)
			}
			sum += int64(rows) * rowBytes / int64(len(m.seats))
		default:
			sum += int64(plan.offsets[len(m.seats)]) * rowBytes
		}
	}
	return sum * int64(len(m.seats))
}

// rowsSent returns the rows that a rank gives in an alltoallv.
func (m *meeting) rowsSent(turn, i int, plan *plan) int {
	size := len(m.seats)
	if plan.state == direct {
		return sum(m.boxes[turn][i].counts(size))
	}
	return plan.matrix[i*(size+1)+size]
}

// work does the share of the rank at pos.
func (m *meeting) work(turn, pos int, plan *plan, j *job) {
	c := &m.seats[pos].calls[turn]
	if c.split && pos == 0 {
		m.planSplit(turn)
	}
	for i := range c.op.Parts {
		switch c.op.Kind {
		case comm.AllReduce:
			m.allReduce(turn, pos, i, j)
		case comm.Reduce:
			if pos == c.op.Peer {
				j.sources(m, turn, i)
				j.dsts = append(j.dsts, c.op.Parts[i].Dst)
				j.reduceAll(c.op.Reduce, 0, elements(c.op.Parts[i].Src))
			}
		case comm.Broadcast:
			if pos != c.op.Peer {
				j.copy(c.op.Parts[i].Dst, m.seats[c.op.Peer].calls[turn].op.Parts[i].Src)
			}
		case comm.AllGather, comm.AllGatherV:
			m.gather(turn, pos, i, plan, j)
		case comm.ReduceScatter, comm.ReduceScatterV:
			m.scatter(turn, pos, i, plan, j)
		case comm.AllToAllV:
			m.exchange(turn, pos, i, plan, j)
		case comm.Send:
			j.copy(m.seats[1].calls[turn].op.Parts[i].Dst, c.op.Parts[i].Src)
		}
	}
	m.reportCounts(c, pos, plan)
}

func elements(b comm.Buffer) int { return b.Rows() * b.Cols() }

// slice returns the elements of an all-reduce that are the share of the rank at pos.
func (m *meeting) slice(b comm.Buffer, pos int) (lo, hi int) {
	n, line := elements(b), lineBytes/b.DType().Size()
	lines, size := (n+line-1)/line, len(m.seats)
	return min(n, lines*pos/size*line), min(n, lines*(pos+1)/size*line)
}

func (m *meeting) allReduce(turn, pos, part int, j *job) {
	c := &m.seats[pos].calls[turn]
	lo, hi := m.slice(c.op.Parts[part].Src, pos)
	if lo == hi {
		return
	}
	j.sources(m, turn, part)
	for i := range m.seats {
		j.dsts = append(j.dsts, m.seats[i].calls[turn].op.Parts[part].Dst)
	}
	j.reduceAll(c.op.Reduce, lo, hi)
}

// gather copies what every rank has to the one at pos, beginning with its own.
func (m *meeting) gather(turn, pos, part int, plan *plan, j *job) {
	dst, off := m.seats[pos].calls[turn].op.Parts[part].Dst, plan.offsets
	for k := range m.seats {
		i := (pos + k) % len(m.seats)
		src := m.seats[i].calls[turn].op.Parts[part].Src
		j.copy(dst.Slice(off[i], off[i+1]), src.Slice(0, off[i+1]-off[i]))
	}
}

func (m *meeting) scatter(turn, pos, part int, plan *plan, j *job) {
	c := &m.seats[pos].calls[turn]
	lo, hi := plan.offsets[pos], plan.offsets[pos+1]
	if lo == hi {
		return
	}
	j.sources(m, turn, part)
	for i := range j.srcs {
		j.srcs[i] = j.srcs[i].Slice(lo, hi)
	}
	j.dsts = append(j.dsts, c.op.Parts[part].Dst.Slice(0, hi-lo))
	j.reduceAll(c.op.Reduce, 0, elements(j.dsts[0]))
}

// exchange copies what every rank sends to the one at pos.
func (m *meeting) exchange(turn, pos, part int, plan *plan, j *job) {
	dst, size, at := m.seats[pos].calls[turn].op.Parts[part].Dst, len(m.seats), 0
	for i := range m.seats {
		begin := plan.matrix[i*(size+1):]
		lo, hi := begin[pos], begin[pos+1]
		j.copy(dst.Slice(at, at+hi-lo), m.seats[i].calls[turn].op.Parts[part].Src.Slice(lo, hi))
		at += hi - lo
	}
}

// reportCounts fills the counts that come out on the device.
func (m *meeting) reportCounts(c *call, pos int, plan *plan) {
	size := len(m.seats)
	switch c.op.Kind {
	case comm.AllGatherV, comm.ReduceScatterV:
		for i, out := 0, countsOut(c.op.Send); i < len(out); i++ {
			out[i] = int32(plan.offsets[i+1] - plan.offsets[i])
		}
	case comm.AllToAllV:
		for i, out := 0, countsOut(c.op.Recv); i < len(out); i++ {
			begin := plan.matrix[i*(size+1):]
			out[i] = int32(begin[pos+1] - begin[pos])
		}
	}
}

// countsOut is where everyone's counts go, one for each rank; empty when the host has them.
func countsOut(c comm.Counts) []int32 {
	if _, host := c.Host(); host {
		return nil
	}
	_, all, _ := c.Device()
	out, err := comm.View[int32](all)
	if err != nil {
		panic(err) // Comm.Do has validated it
	}
	return out
}

// sentBytes is what the share of the rank at pos moves between two different ranks. Over all ranks it adds up to
// 2(P-1)S for an all-reduce of S bytes, (P-1)S for the gathering and scattering forms, broadcast and reduce, and what is
// off the diagonal for alltoallv. It reads the plan and this rank's own call only.
func (m *meeting) sentBytes(turn, pos int, plan *plan) (sum int64) {
	c := &m.seats[pos].calls[turn]
	others, size := int64(len(m.seats)-1), len(m.seats)
	for i := range c.op.Parts {
		p := &c.op.Parts[i]
		switch c.op.Kind {
		case comm.AllReduce:
			lo, hi := m.slice(p.Src, pos)
			sum += 2 * others * int64(hi-lo) * int64(p.Src.DType().Size())
		case comm.Reduce:
			if pos == c.op.Peer {
				sum += others * p.Src.SizeBytes()
			}
		case comm.Broadcast:
			if pos != c.op.Peer {
				sum += p.Src.SizeBytes()
			}
		case comm.AllGather, comm.AllGatherV:
			own := plan.offsets[pos+1] - plan.offsets[pos]
			sum += int64(plan.offsets[size]-own) * rowBytes(p.Src)
		case comm.ReduceScatter, comm.ReduceScatterV:
			sum += others * int64(plan.offsets[pos+1]-plan.offsets[pos]) * rowBytes(p.Src)
		case comm.AllToAllV:
			for i := range size {
				if i != pos {
					sum += int64(plan.received(c, i, pos)) * rowBytes(p.Src)
				}
			}
		case comm.Send:
			sum += p.Src.SizeBytes()
		}
	}
	return sum
}

func rowBytes(b comm.Buffer) int64 { return int64(b.Cols()) * int64(b.DType().Size()) }

// received returns the rows that the rank at pos gets from rank i in an alltoallv.
func (p *plan) received(c *call, i, pos int) int {
	if c.recv != nil {
		return c.recv[i]
	}
	begin := p.matrix[i*(c.size+1):]
	return begin[pos+1] - begin[pos]
}
