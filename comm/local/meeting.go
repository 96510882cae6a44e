package local

import (
	"math/bits"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weftgo/weft/internal/par"
)

// meeting is where up to 64 seats wait for each other, again and again. A group has one for its collectives and one for
// each pair that has exchanged messages.
//
// A rank arrives by setting its bit. The one that completes the word has the meeting to itself until it calls release,
// which starts the next round. The atomics order everything a rank wrote before it arrived before everything any
// rank reads after it was released.
type meeting struct {
	seats   []seat
	full    uint64
	life    *life
	timeout time.Duration
	numSpin int // looks at the round before the first yield

	_       [64]byte // the words below are written by all ranks: each has a cache line of its own
	arrived atomic.Uint64
	_       [56]byte
	round   atomic.Uint64
	_       [56]byte
	parked  atomic.Uint64 // seats that may need a token to wake
	_       [56]byte
	closed  atomic.Uint64 // seats whose rank has closed

	plan  plan   // of the call in progress, written by the last to arrive
	fault *fault // why the call fails on all ranks before it began; written by the last to arrive

	mu      sync.Mutex // of what follows
	broken  *fault     // a panic between the meetings; looked at after the second
	gone    uint64     // seats that came, and left when the world died or a wait ran out: not to blame
	expired uint64     // who was missing when the first wait ran out of time; 0 before that
}

// seat is one rank's place in a meeting, used by that rank alone except where noted.
type seat struct {
	rank  int           // in the world
	wake  chan struct{} // tokens; a stale one only makes its owner look again
	turn  int           // 0 or 1: which of calls the next operation uses
	calls [2]call       // read by all ranks between the meetings; two, since a fast rank may publish its next early
	job   job
	timer *time.Timer // sends a token; armed at most once in a timeout, not once in a wait
	armed atomic.Bool // the timer has been set and has not fired
	_     [64]byte
}

func newMeeting(members []int, timeout time.Duration, l *life) *meeting {
	n := len(members)
	m := &meeting{seats: make([]seat, n), full: ^uint64(0) >> (64 - n), life: l, timeout: timeout}
	if n > 1 && n <= runtime.GOMAXPROCS(0) {
		m.numSpin = maxSpin
	}
	for i := range m.seats {
		s := &m.seats[i]
		s.rank, s.wake = members[i], make(chan struct{}, 1)
		s.job.bind()
	}
	return m
}

// maxSpin and maxYield bound what a rank does before it parks. See BenchmarkBarrier.
const (
	maxSpin  = 300
	maxYield = 20
)

// arrive notes that the seat has come. If it is the last, it must call release soon. round is what release will change.
func (m *meeting) arrive(pos int) (round uint64, last bool) {
	bit := uint64(1) << pos
	round = m.round.Load()
	return round, m.arrived.Or(bit)|bit == m.full
}

// release starts the next round and wakes everyone. A parker sets its bit before it looks at the round, and we change
// the round before we look at the bits, so one of both sees the other.
func (m *meeting) release() {
	m.arrived.Store(0)
	m.round.Add(1)
	if m.parked.Load() == 0 {
		return
	}
	m.wakeAll(m.parked.Swap(0))
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

// glance waits without parking and reports whether the round is over.
func (m *meeting) glance(round uint64) bool {
	for range m.numSpin {
		if m.round.Load() != round {
			return true
		}
	}
	for range maxYield {
		runtime.Gosched()
		if m.round.Load() != round {
			return true
		}
	}
	return false
}

// finish is the second meeting: all ranks are in the call, none of them waits for anything but its own work, so this
// needs no deadline and ends even when the world dies meanwhile. It returns the time it waited.
func (m *meeting) finish(pos int) time.Duration {
	round, last := m.arrive(pos)
	if last {
		m.release()
		return 0
	}
	start := time.Now()
	m.settle(pos, round)
	return time.Since(start)
}

// settle waits for the end of a round that all ranks have come to.
func (m *meeting) settle(pos int, round uint64) {
	if m.glance(round) {
		return
	}
	par.Leave() // a rank still at work may use this one's core
	defer par.Enter()
	s, bit := &m.seats[pos], uint64(1)<<pos
	for m.round.Load() == round {
		m.parked.Or(bit)
		if m.round.Load() != round {
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
