package local

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"strings"
	"time"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/internal/clock"
	"github.com/weftgo/weft/internal/par"
)

// await is the first meeting: it waits until the gate opens, the world is dead, a rank that is needed has closed, the
// timeout is over or ctx ends. Unless all have come, the seat leaves the round again, so that the round
// cannot start without it and nobody will touch its buffers.
func (m *meeting) await(ctx context.Context, pos int, g *gate, call *call) (time.Duration, error) {
	begin := clock.Read()
	if m.glance(pos, g) {
		return begin.Elapsed(), nil
	}
	glanced, start := begin.Elapsed(), time.Now()
	par.Leave() // a rank still at work may use this one's core
	defer par.Enter()
	s, bit := &m.seats[pos], uint64(1)<<pos
	for !g.open() {
		if m.closed.Load() != 0 || !m.life.alive() || ctx.Err() != nil || time.Since(start) >= m.timeout {
			committed, err := m.leave(ctx, pos, call, time.Since(start))
			switch {
			case committed:
				m.settle(pos, g)
				return glanced + time.Since(start), nil
			case err != nil:
				m.parked.And(^bit)
				return glanced + time.Since(start), err
			}
		}
		s.arm(m.timeout - time.Since(start))
		m.parked.Or(bit)
		if g.open() || m.closed.Load()&^m.have(pos) != 0 {
			continue
		}
		m.giveWay(pos, true)
		select {
		case <-s.wake:
		case <-m.life.dead:
		case <-ctx.Done():
		}
		m.giveWay(pos, false)
	}
	m.parked.And(^bit)
	return glanced + time.Since(start), nil
}

// arm makes sure that a token comes within d. A timer that is set already comes earlier: its token makes the owner look
// at the clock and arm again. So a wait costs no timer operation as long as waits are shorter than the timeout.
func (s *seat) arm(d time.Duration) {
	if s.armed.Swap(true) {
		return
	}
	if s.timer == nil {
		s.timer = time.AfterFunc(d, func() {
			s.armed.Store(false)
			s.token()
		})
		return
	}
	s.timer.Reset(d)
}

// leave takes the seat out of the round and returns why. It does not when all ranks have come (committed) or when nothing
// is wrong after all.
func (m *meeting) leave(ctx context.Context, pos int, call *call, waited time.Duration) (committed bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	arrived := m.have(pos)
	if arrived == m.full {
		return true, nil
	}
	if err = m.reason(ctx, pos, call, waited, arrived); err == nil {
		return false, nil
	}
	if m.retract(pos) {
		return true, nil
	}
	if m.expired != 0 || !m.life.alive() {
		m.gone |= 1 << pos
	}
	return false, err
}

// reason says why the seat may leave when only the seats in arrived have come; nil if there is no reason. m.mu is held.
func (m *meeting) reason(ctx context.Context, pos int, call *call, waited time.Duration, arrived uint64) error {
	rank := m.seats[pos].rank
	missing := m.full &^ (arrived | m.gone)
	if !m.life.alive() {
		if m.expired != 0 && m.expired>>pos&1 == 0 { // we waited for the same ranks as the one that gave up first
			return m.timeoutError(rank, call, waited, m.expired)
		}
		return comm.AbortedError(call.label(), rank, fmt.Errorf("the world is dead: %w", m.life.cause))
	}
	if waited >= m.timeout {
		if m.expired == 0 {
			m.expired = missing
		}
		return m.timeoutError(rank, call, waited, m.expired)
	}
	if gone := m.closed.Load() &^ arrived; gone != 0 {
		e := comm.Errorf(call.label(), rank, comm.Invalid, "%s closed", m.names(gone))
		e.Peer = m.first(gone)
		return e
	}
	if ctx.Err() == nil {
		return nil
	}
	code := comm.Aborted
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		code = comm.Timeout
		if m.expired == 0 {
			m.expired = missing
		}
	}
	return &comm.Error{Op: call.label(), Rank: rank, Peer: m.first(missing), Code: code,
		Err: fmt.Errorf("waited %v for %s: %w", waited.Round(time.Microsecond), m.names(missing), context.Cause(ctx))}
}

func (m *meeting) timeoutError(rank int, call *call, waited time.Duration, missing uint64) error {
	return &comm.Error{Op: call.label(), Rank: rank, Peer: m.first(missing), Code: comm.Timeout,
		Err: fmt.Errorf("waited %v (of %v) for %s in %v", waited.Round(time.Microsecond), m.timeout, m.names(missing), call)}
}

// first returns the world rank of the first seat in the set.
func (m *meeting) first(set uint64) int {
	if set == 0 {
		return comm.NoPeer
	}
	return m.seats[bits.TrailingZeros64(set)].rank
}

// names lists the world ranks of a set, such as "rank 3" or "ranks 3, 5".
func (m *meeting) names(set uint64) string {
	var b strings.Builder
	for v := set; v != 0; v &= v - 1 {
		if b.Len() > 0 {
			b.WriteString(", ")
		}
		fmt.Fprint(&b, m.seats[bits.TrailingZeros64(v)].rank)
	}
	if set&(set-1) == 0 {
		return "rank " + b.String()
	}
	return "ranks " + b.String()
}
