package deploy

import (
	"sync/atomic"

	"github.com/weftgo/weft/comm"
)

// marker hears of a rank's collectives and tells whether the rank is in one. It hands on what it hears.
type marker struct {
	next comm.Tracer // nil: nobody
	in   atomic.Bool
}

// Begin is of comm.Tracer.
func (m *marker) Begin(rank int, op *comm.Op) {
	m.in.Store(true)
	if m.next != nil {
		m.next.Begin(rank, op)
	}
}

// End is of comm.Tracer.
func (m *marker) End(rank int, op *comm.Op, err error) {
	if m.next != nil {
		m.next.End(rank, op, err)
	}
	m.in.Store(false)
}
