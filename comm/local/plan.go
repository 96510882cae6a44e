package local

import (
	"fmt"

	"github.com/weftgo/weft/comm"
)

// plan is what the last rank to arrive works out for all.
type plan struct {
	whole   bool   // that rank did the whole call: no second meeting
	state   uint32 // led: direct if boxes are all that the work needs, else opaque
	offsets []int  // gather and scatter: rank i has rows [offsets[i], offsets[i+1])
	matrix  []int  // alltoallv: where in the source of i the rows for j begin, at [i*(size+1)+j]
	groups  map[int]*group
}

// compare checks that all ranks are in the same call and makes the plan.
func (m *meeting) compare(turn int, p *plan) *fault {
	first := &m.seats[0].calls[turn]
	if first.op.Kind == comm.Send && !first.split {
		return m.comparePair(turn)
	}
	for i := range m.seats {
		if c := &m.seats[i].calls[turn]; c.differs(first) {
			return m.disagree(0, i, fmt.Errorf("ranks disagree: rank %d calls %v, rank %d calls %v",
				m.seats[0].rank, first, m.seats[i].rank, c))
		}
	}
	if first.split {
		return nil
	}
	switch first.op.Kind {
	case comm.AllGather:
		p.equal(len(m.seats), first.op.Parts[0].Src.Rows())
	case comm.ReduceScatter:
		p.equal(len(m.seats), first.op.Parts[0].Dst.Rows())
	case comm.AllGatherV, comm.ReduceScatterV:
		return m.planRagged(turn, p)
	case comm.AllToAllV:
		return m.planMatrix(turn, p)
	}
	return nil
}

func (m *meeting) disagree(i, j int, err error) *fault {
	return &fault{code: comm.Invalid, a: m.seats[i].rank, b: m.seats[j].rank, err: err}
}

// bad is a fault of one rank's numbers.
func (m *meeting) bad(i int, format string, args ...any) *fault {
	rank := m.seats[i].rank
	return m.disagree(i, i, fmt.Errorf("rank %d: %w", rank, fmt.Errorf(format, args...)))
}

func (m *meeting) comparePair(turn int) *fault {
	s, r := &m.seats[0].calls[turn], &m.seats[1].calls[turn]
	same := len(s.op.Parts) == len(r.op.Parts)
	for i := range s.op.Parts {
		if same {
			a, b := s.op.Parts[i].Src, r.op.Parts[i].Dst
			same = a.Rows() == b.Rows() && a.Cols() == b.Cols() && a.DType() == b.DType()
		}
	}
	if same {
		return nil
	}
	return m.disagree(0, 1, fmt.Errorf("ranks disagree: rank %d calls %v, rank %d calls %v",
		m.seats[0].rank, s, m.seats[1].rank, r))
}

// equal plans the same number of rows for each of size ranks.
func (p *plan) equal(size, rows int) {
	off := p.offsets[:0]
	for i := range size + 1 {
		off = append(off, i*rows)
	}
	p.offsets = off
}

// ragged plans the given numbers of rows.
func (p *plan) ragged(counts []int) {
	off, sum := append(p.offsets[:0], 0), 0
	for _, n := range counts {
		sum += n
		off = append(off, sum)
	}
	p.offsets = off
}

// planRagged adds the counts up, after checks of what only this driver's ranks together can know: counts on the device.
func (m *meeting) planRagged(turn int, p *plan) *fault {
	first := &m.seats[0].calls[turn]
	if _, host := first.op.Send.Host(); host {
		p.ragged(first.send)
		return nil
	}
	off := append(p.offsets[:0], 0)
	for i := range m.seats {
		n := m.seats[i].calls[turn].send[0]
		if f := m.inRange(turn, i, 0, n); f != nil {
			return f
		}
		off = append(off, off[i]+n)
	}
	p.offsets = off
	for i := range m.seats {
		for _, part := range m.seats[i].calls[turn].op.Parts {
			if f := m.holds(turn, i, part, off); f != nil {
				return f
			}
		}
	}
	return nil
}

// inRange checks one count of rank i that was on the device.
func (m *meeting) inRange(turn, i, to, n int) *fault {
	op := m.seats[i].calls[turn].op
	_, _, limit := op.Send.Device()
	if n >= 0 && n <= limit {
		return nil
	}
	if op.Kind == comm.AllToAllV {
		return m.bad(i, "count %d for rank %d is not in [0, max %d]", n, m.seats[to].rank, limit)
	}
	return m.bad(i, "own count %d is not in [0, max %d]", n, limit)
}

// holds checks the rows of rank i's buffers against counts that were on the device.
func (m *meeting) holds(turn, i int, p comm.Part, off []int) *fault {
	own, sum := off[i+1]-off[i], off[len(off)-1]
	if m.seats[i].calls[turn].op.Kind == comm.AllGatherV {
		if p.Src.Rows() < own {
			return m.bad(i, "own count %d exceeds the %d rows of src", own, p.Src.Rows())
		}
		return nil
	}
	if p.Src.Rows() < sum {
		return m.bad(i, "src has %d rows, the counts of all ranks need %d", p.Src.Rows(), sum)
	}
	if p.Dst.Rows() < own {
		return m.bad(i, "dst has %d rows, own count is %d", p.Dst.Rows(), own)
	}
	return nil
}

// planMatrix matches what each rank sends with what each expects.
func (m *meeting) planMatrix(turn int, plan *plan) *fault {
	size := len(m.seats)
	if plan.matrix == nil {
		plan.matrix = make([]int, size*(size+1))
	}
	for i := range m.seats {
		c := &m.seats[i].calls[turn]
		_, host := c.op.Send.Host()
		begin, sum := plan.matrix[i*(size+1):], 0
		for j, n := range c.send {
			if !host {
				if f := m.inRange(turn, i, j, n); f != nil {
					return f
				}
			}
			begin[j] = sum
			sum += n
			if f := m.expected(turn, i, j, n); f != nil {
				return f
			}
		}
		begin[size] = sum
		for _, p := range c.op.Parts {
			if p.Src.Rows() < sum {
				return m.bad(i, "src has %d rows, the counts send %d", p.Src.Rows(), sum)
			}
		}
	}
	return nil
}

// expected checks that rank j takes the n rows that rank i sends it.
func (m *meeting) expected(turn, i, j, n int) *fault {
	to := &m.seats[j].calls[turn]
	a, b := m.seats[i].rank, m.seats[j].rank
	if _, host := to.op.Recv.Host(); host {
		if to.recv[i] != n {
			return m.disagree(i, j, fmt.Errorf("rank %d sends %d rows to rank %d, which expects %d", a, n, b, to.recv[i]))
		}
		return nil
	}
	if _, _, limit := to.op.Recv.Device(); n > limit {
		return m.disagree(i, j, fmt.Errorf("rank %d sends %d rows to rank %d, which takes at most %d", a, n, b, limit))
	}
	return nil
}
