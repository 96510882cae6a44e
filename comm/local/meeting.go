package local

import (
	"math/bits"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weftgo/weft/internal/clock"
	"github.com/weftgo/weft/internal/par"
)

// meeting is where up to 64 seats wait for each other, again and again. A group has one for its collectives and one for
// each pair that has exchanged messages.
//
// A rank arrives by turning over its bit of a word, and all ranks have come when the word is full, or empty every other
// time. Two words take turns, so nobody has to reset one: who can turn over the bits of a word again has seen that everyone
// left the round between. The atomics order everything a rank wrote before it arrived before everything any rank reads after
// all have come.
//
// Where every rank can have a core, they all go on at once (each makes the plan for itself). Where ranks share cores, it is cheaper that
// the last to arrive does all it can for everyone: the meeting is led, and the others wait for its word.
type meeting struct {
	seats   []seat
	boxes   [2][]*box // [turn][seat]; nil if led
	full    uint64
	life    *life
	timeout time.Duration
	led     bool // the last to arrive works for all and lets them go
	numSpin int  // looks before the first yield

	_       [64]byte // the words below are written by all ranks: each has a cache line of its own
	words   [2]word  // who has come to the rounds
	going   word     // led: rounds that the last to arrive has let go
	parked  word     // seats that may need a token to wake
	closed  word     // seats whose rank has closed
	broken  atomic.Pointer[breakage]
	_       [56]byte
	plan    plan   // led: of the call in progress, written by the last to arrive
	fault   *fault // led: why the call fails on all ranks; written by the last to arrive
	mu      sync.Mutex
	gone    uint64 // seats that came, and left when the world died or a wait ran out: not to blame; under mu
	expired uint64 // who was missing when the first wait ran out of time; 0 before that; under mu
}

// word is an atomic with a cache line of its own.
type word struct {
	atomic.Uint64
	_ [56]byte
}

// breakage is a panic in the shares of one round.
type breakage struct {
	round uint64
	fault *fault
}

// seat is one rank's place in a meeting, used by that rank alone except where noted.
type seat struct {
	rank     int           // in the world
	wake     chan struct{} // tokens; a stale one only makes its owner look again
	round    uint64        // rounds that the rank has come to
	turn     int           // 0 or 1: which of calls the next operation uses
	calls    [2]call       // read by all ranks during the call; two, since a fast rank may publish its next early
	plan     plan          // of the call in progress, unless the meeting is led
	at       [MaxRanks]int // unpack: how far each box has been read
	job      job
	together uint        // waits that ended when this rank gave way: it shares a core with another
	timer    *time.Timer // sends a token; armed at most once in a timeout, not once in a wait
	armed    atomic.Bool // the timer has been set and has not fired
	_        [64]byte
}

func newMeeting(members []int, timeout time.Duration, l *life) *meeting {
	n := len(members)
	m := &meeting{seats: make([]seat, n), full: ^uint64(0) >> (64 - n), life: l, timeout: timeout}
	if m.led = n > runtime.GOMAXPROCS(0); !m.led {
		m.numSpin = maxSpin
	}
	for i := range m.seats {
		s := &m.seats[i]
		s.rank, s.wake = members[i], make(chan struct{}, 1)
		s.job.bind()
		for t := range s.calls {
			s.calls[t].pos, s.calls[t].size = i, n
		}
		if !m.led {
			b := new(boxes)
			for t := range s.calls {
				s.calls[t].box = &b.b[t]
				m.boxes[t] = append(m.boxes[t], &b.b[t])
			}
		}
	}
	return m
}

// How a rank waits before it parks. See BenchmarkBarrier.
const (
	maxSpin   = 500 // looks, some 15 us
	tightSpin = 100 // of these, looks without a pause between
	shortSpin = 20  // looks of a rank that shares a core with another
	longSpins = 100 // waits in which such a rank spins long, in the hope
	retrySpin = 64  // in one of so many times longSpins waits
	maxYield  = 20  // yields after that
)

// gate is what a rank waits at: a word, and the value that says it may pass.
type gate struct {
	word   *atomic.Uint64
	target uint64
}

func (g gate) open() bool { return g.word.Load() == g.target }

// words of round r, and what it is when all have come.
func (m *meeting) entry(round uint64) gate {
	g := gate{word: &m.words[round&1].Uint64}
	if round&2 == 0 {
		g.target = m.full
	}
	return g
}

// present returns the seats that have come to a round, given its word.
func (m *meeting) present(round, v uint64) uint64 {
	if round&2 == 0 {
		return v
	}
	return ^v & m.full
}

// arrive notes that the seat has come. If it is the last of a meeting that is led, it must call release soon. It returns what
// opens when the seat may go on.
func (m *meeting) arrive(pos int) (g gate, last bool) {
	s := &m.seats[pos]
	g = m.entry(s.round)
	delta := uint64(1) << pos
	if s.round&2 != 0 {
		delta = -delta
	}
	s.round++
	last = g.word.Add(delta) == g.target
	if m.led {
		return gate{&m.going.Uint64, s.round}, last
	}
	if last {
		m.wakeParked()
	}
	return g, last
}

// release lets everyone go who waits for the last to arrive.
func (m *meeting) release(pos int) {
	m.going.Store(m.seats[pos].round)
	m.wakeParked()
}

// wakeParked wakes everyone who sleeps. A parker sets its bit before it looks at the gate, and the gate was opened before
// we look at the bits, so one of both sees the other.
func (m *meeting) wakeParked() {
	if m.parked.Load() != 0 {
		m.wakeAll(m.parked.Swap(0))
	}
}

func (m *meeting) wakeAll(set uint64) {
	for ; set != 0; set &= set - 1 {
		m.seats[bits.TrailingZeros64(set)].token()
	}
}

// token wakes the seat's rank if it is parked or about to park.
func (s *seat) token() {
	select {
	case s.wake <- struct{}{}:
	default: // one is there already
	}
}

// soon looks at the gate for a moment that is not worth two looks at the clock.
func (m *meeting) soon(s *seat, g gate) bool {
	for range min(m.numSpin, shortSpin) {
		if g.open() {
			s.together = 0
			return true
		}
	}
	return g.open()
}

// glance waits without parking and reports whether the gate opened.
//
// Two ranks that share a core, though another is idle, stay together as long as each gives way to the other at once: nobody
// finds the one that waits. So a rank spins long enough for an idle core to take the other, but when that did not help, it
// tries again only now and then.
func (m *meeting) glance(s *seat, g gate) bool {
	spins := m.numSpin
	if s.together%(retrySpin*longSpins) >= longSpins {
		spins = min(spins, shortSpin)
	}
	for i := range spins {
		if g.open() {
			s.together = 0
			return true
		}
		if i > tightSpin {
			clock.Pause()
		}
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
	g, last := m.arrive(pos)
	if last {
		if m.led {
			m.release(pos)
		}
		return 0
	}
	if m.soon(&m.seats[pos], g) {
		return 0
	}
	start := clock.Read()
	m.settle(pos, g)
	return start.Elapsed()
}

// settle waits for the end of a round that all ranks have come to, or will come to whatever happens.
func (m *meeting) settle(pos int, g gate) {
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

// close marks a seat whose rank will not come again and lets the others see it.
func (m *meeting) close(pos int) {
	m.closed.Or(1 << pos)
	m.wakeAll(m.parked.Swap(0))
}
