package local

import (
	"runtime"
	"time"

	"github.com/weftgo/weft/internal/clock"
	"github.com/weftgo/weft/internal/par"
)

// How a rank waits before it parks. See BenchmarkBarrier.
const (
	soonLooks = 200 // looks that are not worth reading the clock: some transfers of a cache line
	fewLooks  = 20  // of these, where the rank shares a core
	maxSpin   = 500 // looks with a pause between, some 15 us
	ledSpin   = 50  // the same where ranks share cores
	patience  = 10  // of these, looks at a rank that has given way

	patientWaits = 64   // waits with patience, where ranks share a core
	hastyWaits   = 1024 // waits without after these
	maxYield     = 20   // yields after that
)

// gate is what a rank waits at.
//
// That all have come to a call is one moment, after which none may take it back, although each seat has a word of its own: a seat
// that leaves takes its number back, counts that in leaves, and only then looks who else has come. If all have, it puts the
// number back and goes on with them. So when nobody left while a rank looked at all seats, what it saw was true at once. Of two
// seats, one is the rank's own.
type gate struct {
	m      *meeting
	stage  stage
	turn   int
	number uint64 // of the call; of the round if led
}

type stage uint8

const (
	coming  stage = iota // all have come to the call
	doing                // all have done their work of it
	led                  // the last to arrive has let the others go
	sharing              // led: all shares of the call are done
)

func (g *gate) open() bool {
	m := g.m
	switch g.stage {
	case led:
		return m.going.Load() == g.number
	case sharing:
		return m.left.Load() == 0
	case doing:
		behind := uint64(0)
		for _, d := range m.done { // all words, whatever they say, so that the processor fetches them at once
			behind |= (d.Load() - g.number) >> 63
		}
		return behind == 0
	}
	return m.allCame(g.turn, g.number)
}

func (m *meeting) allCame(turn int, number uint64) bool {
	boxes := m.boxes[turn]
	if len(boxes) == 2 {
		return boxes[0].call.Load() == number && boxes[1].call.Load() == number
	}
	leaves, missing := m.leaves.Load(), uint64(0)
	for _, b := range boxes {
		missing |= b.call.Load() ^ number
	}
	return missing == 0 && m.leaves.Load() == leaves
}

// come notes that the seat has come to its next call, whose box is filled.
func (m *meeting) come(s *seat) gate {
	number := s.call + 1
	s.calls[s.turn].box.call.Store(number)
	m.wakeParked()
	return gate{m: m, stage: coming, turn: s.turn, number: number}
}

// entered notes that all have come.
func (s *seat) entered() {
	s.call++
	s.turn ^= 1
}

// entry returns the word of a round of a led meeting, and what it is when all have come.
func (m *meeting) entry(round uint64) (w *word, target uint64) {
	w = &m.words[round&1]
	if round&2 == 0 {
		target = m.full
	}
	return w, target
}

// arrive notes that the seat has come to a round of a led meeting. The last must call release soon. It returns what opens when the
// seat may go on.
func (m *meeting) arrive(pos int) (g gate, last bool) {
	s := &m.seats[pos]
	w, target := m.entry(s.round)
	delta := uint64(1) << pos
	if s.round&2 != 0 {
		delta = -delta
	}
	s.round++
	last = w.Add(delta) == target
	return gate{m: m, stage: led, number: s.round}, last
}

// release lets everyone go who waits for the last to arrive.
func (m *meeting) release(pos int) {
	m.going.Store(m.seats[pos].round)
	m.wakeParked()
}

// have returns the seats that have come to what the seat at pos waits for.
func (m *meeting) have(pos int) (set uint64) {
	s := &m.seats[pos]
	if m.led {
		return m.present(s.round - 1)
	}
	for i, b := range m.boxes[s.turn] {
		if b.call.Load() == s.call+1 {
			set |= 1 << i
		}
	}
	return set
}

// present returns the seats that have come to a round of a led meeting.
func (m *meeting) present(round uint64) uint64 {
	w, _ := m.entry(round)
	if round&2 == 0 {
		return w.Load()
	}
	return ^w.Load() & m.full
}

// retract takes back that the seat has come, unless all have. m.mu is held.
func (m *meeting) retract(pos int) (committed bool) {
	s, bit := &m.seats[pos], uint64(1)<<pos
	if m.led {
		w, target := m.entry(s.round - 1)
		for v := w.Load(); v != target; v = w.Load() { // it stays so until this seat comes to a later round
			if w.CompareAndSwap(v, v^bit) {
				s.round--
				return false
			}
		}
		return true
	}
	own := &s.calls[s.turn].box.call
	own.Store(0)
	m.leaves.Add(1)
	if m.have(pos)|bit != m.full {
		return false
	}
	own.Store(s.call + 1)
	m.wakeParked()
	return true
}

// soon looks at the gate for a moment that is not worth two looks at the clock.
func (m *meeting) soon(pos int, g *gate) bool {
	if g.open() {
		return true
	}
	s := &m.seats[pos]
	for i := range soonLooks {
		if g.open() {
			s.together = 0 // the other works while this one looks
			return true
		}
		if (m.led || i == fewLooks && s.hasty()) && m.waitsForAway(pos, g) {
			return false
		}
	}
	return false
}

// glance waits without parking and reports whether the gate opened.
//
// Two ranks may share a core, even if another is idle. One that spins then keeps the other from what it waits for. So a rank says
// that it is away while it gives way, and nobody spins long for one that is. But one that has a core of its own comes back at once:
// if its peer gave way for that moment, both would go on giving way to each other. So it looks a little longer, but when many waits ended
// only by giving way, the two do share a core, and it tries that again only now and then.
func (m *meeting) glance(pos int, g *gate) bool {
	s, patience := &m.seats[pos], m.patience
	if s.hasty() {
		patience = 0
	}
	for spins, yields, away := 0, 0, 0; ; {
		if g.open() {
			switch yields {
			case 0:
				s.together = 0
			case 1:
				s.together++
			}
			return true
		}
		if m.waitsForAway(pos, g) {
			away++
		} else {
			away = 0
		}
		if spins < m.numSpin && away <= patience {
			spins++
			clock.Pause()
			continue
		}
		if away = 0; yields == maxYield {
			return false
		}
		yields++
		m.giveWay(pos, true)
		runtime.Gosched()
		m.giveWay(pos, false)
	}
}

// hasty reports whether the rank shares a core with another, as far as it knows.
func (s *seat) hasty() bool { return s.together%(patientWaits+hastyWaits) >= patientWaits }

// giveWay notes that the rank does not run, or that it does again.
func (m *meeting) giveWay(pos int, away bool) {
	switch bit := uint64(1) << pos; {
	case m.led && away:
		m.asleep.Or(bit)
	case m.led:
		m.asleep.And(^bit)
	case away:
		m.away[pos].Store(1)
	default:
		m.away[pos].Store(0)
	}
}

// waitsForAway reports whether a rank that the gate waits for has given way, so that it may need this one's core.
func (m *meeting) waitsForAway(pos int, g *gate) bool {
	switch g.stage {
	case led:
		return m.asleep.Load()&^m.present(g.number-1) != 0
	case sharing:
		return false
	}
	for i, a := range m.away {
		if i != pos && a.Load() != 0 && !g.passed(i) {
			return true
		}
	}
	return false
}

// passed reports whether the gate does not wait for the seat, or no longer.
func (g *gate) passed(i int) bool {
	if g.stage == doing {
		return g.m.done[i].Load() >= g.number
	}
	return g.m.boxes[g.turn][i].call.Load() == g.number
}

// finish is the second meeting: all ranks are in the call, none of them waits for anything but its own work, so this
// needs no deadline and ends even when the world dies meanwhile. It returns the time it waited.
func (m *meeting) finish(pos int) time.Duration {
	number := m.seats[pos].call
	m.done[pos].Store(number)
	m.wakeParked()
	return m.pass(pos, gate{m: m, stage: doing, number: number})
}

// pass waits at a gate that opens whatever happens, and returns the time it waited.
func (m *meeting) pass(pos int, g gate) time.Duration {
	if m.soon(pos, &g) {
		return 0
	}
	start := clock.Read()
	m.settle(pos, &g)
	return start.Elapsed()
}

// settle waits for the end of a round that all ranks have come to, or will come to whatever happens.
func (m *meeting) settle(pos int, g *gate) {
	if m.glance(pos, g) {
		return
	}
	par.Leave() // a rank still at work may use this one's core
	defer par.Enter()
	s, bit := &m.seats[pos], uint64(1)<<pos
	for !g.open() {
		m.parked.Or(bit)
		if g.open() {
			break
		}
		m.giveWay(pos, true)
		<-s.wake
		m.giveWay(pos, false)
	}
	m.parked.And(^bit)
}
