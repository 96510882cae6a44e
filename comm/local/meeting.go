package local

import (
	"math/bits"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// meeting is where up to 64 seats wait for each other, again and again. A group has one for its collectives and one for
// each pair that has exchanged messages.
//
// Where every rank can have a core, each shows the number of the call it has come to in a cache line of its own, and looks at
// those of the others: with two ranks a meeting is one transfer of a line each way, at the same time. All then go on at once, and
// each makes the plan for itself. See gate.
//
// Where ranks share cores, it is cheaper that the last to arrive does all it can for everyone: the meeting is led, and the others
// wait for its word. A rank arrives by turning over its bit of a word, and all have come when the word is full, or empty every
// other time. Two words take turns, so nobody has to reset one: who can turn over the bits of a word again has seen that everyone
// left the round between.
//
// The atomics order everything a rank wrote before it arrived before everything any rank reads after all have come.
type meeting struct {
	seats   []seat
	boxes   [2][]*box // [turn][seat]
	done    []*word   // the last call whose work the seat has done; not if led
	away    []*word   // whether the seat's rank gives way to others while it waits; not if led
	full    uint64
	life    *life
	timeout time.Duration
	led     bool // the last to arrive works for all and lets them go
	numSpin int  // looks before the first yield

	patience int // looks at a rank that has given way, before the first yield

	_       [64]byte // the words below are written by all ranks: each has a cache line of its own
	words   [2]word  // led: who has come to the rounds
	going   word     // led: rounds that the last to arrive has let go
	parked  word     // seats that may need a token to wake
	closed  word     // seats whose rank has closed
	asleep  word     // led: seats whose rank gives way to others while it waits
	next    word     // led: shares of the call that somebody has taken
	left    word     // led: shares that are not done
	leaves  word     // times that a seat took back that it had come
	broken  atomic.Pointer[breakage]
	_       [56]byte
	plan    plan   // led: of the call in progress, written by the last to arrive; always: the groups of a Split
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

// breakage is a panic in the shares of one call.
type breakage struct {
	call  uint64
	fault *fault
}

// seat is one rank's place in a meeting, used by that rank alone except where noted.
type seat struct {
	rank     int           // in the world
	wake     chan struct{} // tokens; a stale one only makes its owner look again
	call     uint64        // number of the last call that all ranks have come to
	round    uint64        // led: rounds that the rank has come to
	turn     int           // 0 or 1: which of calls the next operation uses
	together uint          // waits in a row that ended when this rank gave way
	calls    [2]call       // read by all ranks during the call; two, since a fast rank may publish its next early
	plan     plan          // of the call in progress, unless the meeting is led
	at       [MaxRanks]int // unpack: how far each box has been read
	job      job
	timer    *time.Timer // sends a token; armed at most once in a timeout, not once in a wait
	armed    atomic.Bool // the timer has been set and has not fired
	_        [64]byte
}

func newMeeting(members []int, timeout time.Duration, l *life) *meeting {
	n := len(members)
	m := &meeting{seats: make([]seat, n), full: ^uint64(0) >> (64 - n), life: l, timeout: timeout}
	m.led, m.numSpin, m.patience = n > runtime.GOMAXPROCS(0), maxSpin, patience
	if m.led {
		m.numSpin, m.patience = ledSpin, 0
	}
	for i := range m.seats {
		s := &m.seats[i]
		s.rank, s.wake = members[i], make(chan struct{}, 1)
		s.job.bind()
		for t := range s.calls {
			s.calls[t].pos, s.calls[t].size, s.calls[t].turn = i, n, t
		}
		b := new(boxes)
		for t := range s.calls {
			s.calls[t].box, s.calls[t].led = &b.b[t], m.led
			m.boxes[t] = append(m.boxes[t], &b.b[t])
		}
		m.done, m.away = append(m.done, &b.done), append(m.away, &b.away)
	}
	return m
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

// close marks a seat whose rank will not come again and lets the others see it.
func (m *meeting) close(pos int) {
	m.closed.Or(1 << pos)
	m.wakeAll(m.parked.Swap(0))
}
