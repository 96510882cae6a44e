package alltoall

import (
	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/routing"
)

// matrix is how many rows go from each rank to each, and which ranks refused the call: int32 [size, size+1], the last
// column 1 for a refusal. Every rank has the same after exchange.
type matrix struct {
	size int
	own  []int32
	all  []int32
	sum  []int // [size]: scratch
	mine []int // [size]: scratch
}

func newMatrix(size int) matrix {
	return matrix{size: size, own: make([]int32, size+1), all: make([]int32, size*(size+1)), sum: make([]int, size), mine: make([]int, size)}
}

// exchange gathers every rank's counts. A rank that refuses gives none.
func (m *matrix) exchange(s comm.Stream, c *comm.Comm, p *routing.Plan, refuse bool) error {
	clear(m.own)
	if refuse {
		m.own[m.size] = 1
	} else {
		for d, n := range p.Counts {
			m.own[d] = int32(n)
		}
	}
	return c.AllGather(s, comm.Of(m.all, m.size+1), comm.Of(m.own, m.size+1))
}

// at returns the rows from src to dst.
func (m *matrix) at(src, dst int) int { return int(m.all[src*(m.size+1)+dst]) }

// row returns what src sends to each rank, valid until the next call.
func (m *matrix) row(src int) []int {
	for d := range m.mine {
		m.mine[d] = m.at(src, d)
	}
	return m.mine
}

// refuser returns the first rank that refused, or -1.
func (m *matrix) refuser() int {
	for r := range m.size {
		if m.at(r, m.size) != 0 {
			return r
		}
	}
	return -1
}

// fullest returns the first rank that would receive the most rows.
func (m *matrix) fullest() (dst, rows int) {
	clear(m.sum)
	for src := range m.size {
		for d := range m.sum {
			m.sum[d] += m.at(src, d)
		}
	}
	for d, n := range m.sum {
		if n > rows {
			dst, rows = d, n
		}
	}
	return dst, rows
}

// clip keeps the first limit rows of each destination in (source, token) order.
func (m *matrix) clip(limit int) {
	for d := range m.size {
		left := limit
		for src := range m.size {
			kept := min(left, m.at(src, d))
			m.all[src*(m.size+1)+d] = int32(kept)
			left -= kept
		}
	}
}
