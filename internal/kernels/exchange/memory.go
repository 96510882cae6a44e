package exchange

import (
	"sync/atomic"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/dtype"
)

// Poison makes every bank fill its memory with NaN and wild integers before each use. Tests set it.
var Poison atomic.Bool

// Mem is memory of a fixed width that grows to the most rows asked for and is kept.
type Mem struct {
	t    dtype.DType
	cols int
	most int // rows that can ever be asked for
	buf  comm.Buffer
}

// Rows returns [n, cols] of the memory, with undefined content. It grows by a quarter more than asked, but not beyond
// what can be asked.
func (m *Mem) Rows(c *comm.Comm, n int) (comm.Buffer, error) {
	if m.buf.IsZero() || m.buf.Rows() < n {
		most := n
		if !m.buf.IsZero() {
			most = max(n, min(n+n/4, m.most))
		}
		if err := m.free(c); err != nil {
			return comm.Buffer{}, err
		}
		b, err := comm.Alloc(c, m.t, most, m.cols)
		if err != nil {
			return comm.Buffer{}, err
		}
		m.buf = b
		m.poison()
	}
	return m.buf.Slice(0, n), nil
}

// All returns all rows that can ever be asked for. On a GPU it is called at construction, so that nothing is allocated later.
func (m *Mem) All(c *comm.Comm) (comm.Buffer, error) { return m.Rows(c, m.most) }

func (m *Mem) free(c *comm.Comm) error {
	if m.buf.IsZero() {
		return nil
	}
	b := m.buf
	m.buf = comm.Buffer{}
	return comm.Free(c, b)
}

// poison fills the memory with bytes that are NaN in every floating-point type, and with a wild number in integers.
func (m *Mem) poison() {
	if !Poison.Load() || m.buf.IsZero() || m.buf.Device().Kind != comm.CPU { // kernels fill a GPU's
		return
	}
	m.fill(0, int(m.buf.SizeBytes()))
}

func (m *Mem) fill(lo, hi int) {
	value := byte(0xff)
	if !m.t.IsFloat() {
		value = 0x7b
	}
	b := m.buf.Bytes()[lo:hi]
	for i := range b {
		b[i] = value
	}
}

// Spread moves rows that lie without gaps, counts[r] of each r, to where those of r begin at r x room. m holds as many. Tests fill the
// gaps.
func (m *Mem) Spread(counts []int, room int) {
	end := 0
	for _, n := range counts {
		end += n
	}
	row := m.cols * m.t.Size()
	all := m.buf.Bytes()
	for r := len(counts) - 1; r >= 0; r-- { // none is overwritten before it moves: it moves up, behind those already moved
		end -= counts[r]
		copy(all[r*room*row:], all[end*row:(end+counts[r])*row])
		if Poison.Load() {
			m.fill((r*room+counts[r])*row, (r+1)*room*row)
		}
	}
}

// vector views a slice as [1, len(x)], or [0, 1] when it is empty.
func vector[T dtype.Element](x []T) comm.Buffer {
	if len(x) == 0 {
		return comm.Of(x, 1)
	}
	return comm.Of(x, len(x))
}

// View is comm.View of a buffer that was checked or allocated here.
func View[T dtype.Element](b comm.Buffer) []T {
	x, err := comm.View[T](b)
	if err != nil {
		panic(err)
	}
	return x
}
