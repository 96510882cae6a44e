package local

import (
	"context"
	"fmt"
	"runtime/debug"

	"github.com/weftgo/weft/comm"
)

// run takes a published call through both meetings.
func (m *meeting) run(ctx context.Context, pos int, call *call, stats *comm.OpStats) error {
	s := &m.seats[pos]
	if err := m.dead(s, call); err != nil {
		return err
	}
	turn := s.turn
	if m.led {
		return m.runLed(ctx, pos, nil, call, stats)
	}
	g := m.come(s)
	if err := m.meet(ctx, pos, &g, call, stats); err != nil {
		return err
	}
	s.entered()
	state := m.agreed(turn, call)
	if state == opaque {
		return m.runOpaque(turn, pos, call, stats)
	}
	call.layout(&s.plan)
	stats.SentBytes = m.sentBytes(turn, pos, &s.plan)
	if state == packed {
		m.unpack(turn, pos)
		return nil
	}
	return m.runDirect(turn, pos, call, &s.plan, stats)
}

// dead is the error of a call on a dead world; nil while it lives.
func (m *meeting) dead(s *seat, call *call) error {
	if m.life.alive() {
		return nil
	}
	return comm.AbortedError(call.label(), s.rank, fmt.Errorf("the world is dead: %w", m.life.cause))
}

// meet waits until all have come.
func (m *meeting) meet(ctx context.Context, pos int, g *gate, call *call, stats *comm.OpStats) (err error) {
	if !m.soon(pos, g) {
		stats.Wait, err = m.await(ctx, pos, g, call)
	}
	return err
}

// runDirect does a call whose boxes have the addresses, once all have come.
func (m *meeting) runDirect(turn, pos int, call *call, p *plan, stats *comm.OpStats) error {
	s := &m.seats[pos]
	m.share(turn, pos, pos, p, direct, &s.job)
	stats.Wait += m.finish(pos)
	if f := m.breakage(pos); f != nil {
		return f.of(s.rank, call)
	}
	return nil
}

// runOpaque does a call that the boxes do not tell enough of, or whose ranks disagree, once all have come.
func (m *meeting) runOpaque(turn, pos int, call *call, stats *comm.OpStats) error {
	s := &m.seats[pos]
	fault := m.compare(turn, &s.plan)
	if fault == nil {
		stats.SentBytes = m.sentBytes(turn, pos, &s.plan)
		m.share(turn, pos, pos, &s.plan, opaque, &s.job)
	}
	stats.Wait += m.finish(pos) // also after a fault: others may be reading this rank's call
	if fault == nil {
		fault = m.breakage(pos)
	}
	if fault != nil {
		return fault.of(s.rank, call)
	}
	return nil
}

// runLed is run in a led meeting. k is nil if the call's shape is not known.
func (m *meeting) runLed(ctx context.Context, pos int, k *prepared, call *call, stats *comm.OpStats) error {
	s := &m.seats[pos]
	turn := s.turn
	g, last := m.arrive(pos)
	if last {
		m.lead(turn, pos, call, &s.job)
		m.release(pos)
	} else if err := m.meet(ctx, pos, &g, call, stats); err != nil {
		return err
	}
	s.entered()
	if f := m.fault; f != nil {
		return f.of(s.rank, call)
	}
	if k != nil && m.plan.state == direct {
		stats.SentBytes = k.sent
	} else {
		stats.SentBytes = m.sentBytes(turn, pos, &m.plan)
	}
	if m.plan.whole {
		return nil
	}
	return m.follow(turn, pos, call, stats)
}

// follow is what everyone does once the leader has let them go: shares, whosever they are, until none is left. Who gets a core late
// finds nothing to do.
func (m *meeting) follow(turn, pos int, call *call, stats *comm.OpStats) error {
	s := &m.seats[pos]
	for {
		i := int(m.next.Add(1)) - 1
		if i >= len(m.seats) {
			break
		}
		m.share(turn, pos, i, &m.plan, m.plan.state, &s.job)
		if m.left.Add(^uint64(0)) == 0 {
			m.wakeParked()
		}
	}
	stats.Wait += m.pass(pos, gate{m: m, stage: sharing})
	if f := m.breakage(pos); f != nil {
		return f.of(s.rank, call)
	}
	return nil
}

// lead is what the last to arrive does for all: compare the calls, plan, and do a small call whole.
func (m *meeting) lead(turn, pos int, call *call, j *job) {
	p := &m.plan
	p.whole, m.fault = true, nil
	if p.state = m.agreed(turn, call); p.state != opaque {
		p.state = direct
		call.layout(p)
	} else if m.fault = m.compare(turn, p); m.fault != nil {
		return
	}
	p.whole = m.cost(turn, p) <= wholeBytes
	if !m.plan.whole {
		m.next.Store(0)
		m.left.Store(uint64(len(m.seats)))
		return
	}
	defer func() {
		if p := recover(); p != nil {
			m.fault = m.panicked(pos, p)
		}
	}()
	for i := range m.seats {
		if p.state == direct {
			m.workDirect(turn, i, p, j)
		} else {
			m.work(turn, i, p, j)
		}
	}
}

// share does the part of the rank at whose in the name of that at pos. A panic, which would leave the others
// waiting, becomes a fault of the call on all ranks.
func (m *meeting) share(turn, pos, whose int, p *plan, state uint32, j *job) {
	defer func() {
		if p := recover(); p != nil {
			m.broken.Store(&breakage{call: m.seats[pos].call, fault: m.panicked(pos, p)})
		}
	}()
	if state == direct {
		m.workDirect(turn, whose, p, j)
		return
	}
	m.work(turn, whose, p, j)
}

func (m *meeting) panicked(pos int, p any) *fault {
	rank := m.seats[pos].rank
	return &fault{code: comm.Internal, a: rank, b: rank, err: fmt.Errorf("panic: %v\n%s", p, debug.Stack())}
}

// breakage returns the panic of a share in the call that the seat has just finished.
func (m *meeting) breakage(pos int) *fault {
	if b := m.broken.Load(); b != nil && b.call == m.seats[pos].call {
		return b.fault
	}
	return nil
}
