package local

import (
	"runtime"
	"time"

	"github.com/weftgo/weft/internal/clock"
	"github.com/weftgo/weft/internal/par"
)

// How a rank waits before it parks. See BenchmarkBarrier.
const (
	maxSpin   = 500 // looks, some 15 us
	tightSpin = 100 // of these, looks without a pause between
	shortSpin = 20  // looks of a rank that shares a core with another
	longSpins = 100 // waits in which such a rank spins long, in the hope
	retrySpin = 64  // in one of so many times longSpins waits
	maxYield  = 20  // yields after that
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
	coming stage = iota // all have come to the call
	doing               // all have done their work of it
	led                 // the last to arrive has let the others go
)

func (g *gate) open() bool {
	m := g.m
	switch g.stage {
	case led:
		return m.going.Load() == g.number
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
		round := s.round - 1
		w, _ := m.entry(round)
		if round&2 == 0 {
			return w.Load()
		}
		return ^w.Load() & m.full
	}
	for i, b := range m.boxes[s.turn] {
		if b.call.Load() == s.call+1 {
			set |= 1 << i
		}
	}
	return set
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
func (m *meeting) soon(s *seat, g *gate) bool {
	if g.open() {
		return true
	}
	for range min(m.numSpin, shortSpin) {
		if g.open() {
			s.together = 0 // the other works while this one looks
			return true
		}
	}
	return false
}

// glance waits without parking and reports whether the gate opened.
//
// Two ranks that share a core, though another is idle, stay together as long as each gives way to the other at once: nobody
// finds the one that waits. So a rank spins long enough for an idle core to take the other, but when that did not help, it
// tries again only now and then.
func (m *meeting) glance(s *seat, g *gate) bool {
	spins := m.numSpin
	if s.together%(retrySpin*longSpins) >= longSpins {
		spins = min(spins, shortSpin)
	}
	for range spins {
		if g.open() {
			s.together = 0
			return true
		}
		clock.Pause()
	}
	for i := range maxYield {
		runtime.Gosched()
		if g.open() {
			if i == 0 {
				s.together++
			}
			return true
		}
	}
	return false
}

// finish is the second meeting: all ranks are in the call, none of them waits for anything but its own work, so this
// needs no deadline and ends even when the world dies meanwhile. It returns the time it waited.
func (m *meeting) finish(pos int) time.Duration {
	s := &m.seats[pos]
	g := gate{m: m, stage: doing, number: s.call}
	if m.led {
		last := false
		if g, last = m.arrive(pos); last {
			m.release(pos)
			return 0
		}
	} else {
		m.done[pos].Store(s.call)
		m.wakeParked()
	}
	if m.soon(s, &g) {
		return 0
	}
	start := clock.Read()
	m.settle(pos, &g)
	return start.Elapsed()
}

// settle waits for the end of a round that all ranks have come to, or will come to whatever happens.
func (m *meeting) settle(pos int, g *gate) {
	if m.glance(&m.seats[pos], g) {
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
		<-s.wake
	}
	m.parked.And(^bit)
}
