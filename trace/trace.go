package trace

import (
	"fmt"
	"slices"
	"sync"
	"time"
)

// Kind says what a span's time counts as in the breakdown.
type Kind uint8

// The kinds of span.
const (
	Step       Kind = iota // one forward pass; what it spends outside other spans is compute
	Compute                // work of this rank alone
	Collective             // an operation with other ranks
	Wait                   // waiting for other ranks, in a collective or by itself
	numKinds
)

var kindNames = [numKinds]string{"step", "compute", "collective", "wait"}

// String returns "step", "compute", "collective" or "wait".
func (k Kind) String() string {
	if k >= numKinds {
		return fmt.Sprintf("kind(%d)", uint8(k))
	}
	return kindNames[k]
}

// DefaultMaxEvents is how many events a lane keeps unless MaxEvents says
// otherwise: about 12 MB a lane when full.
const DefaultMaxEvents = 1 << 17

// Recorder keeps the spans of a world's ranks. The nil Recorder is valid and
// records nothing. Any goroutine may call its methods.
type Recorder struct {
	maxEvents int     // kept in one lane; 0 in totals mode
	own       []*Lane // [ranks], never changed after New

	mu    sync.Mutex // over the rest
	start time.Time
	more  []*Lane // of further streams, in order of first use
}

// Option changes what a Recorder keeps.
type Option func(*Recorder)

// Totals is the option to keep sums only: Breakdown and ByName work as ever,
// and WriteJSON writes a file without spans.
func Totals(r *Recorder) { r.maxEvents = 0 }

// MaxEvents returns the option to keep at most n spans and marks a lane; 0 is
// Totals.
func MaxEvents(n int) Option { return func(r *Recorder) { r.maxEvents = max(n, 0) } }

// New returns a Recorder for a world of that many ranks. Its clock starts now.
// It panics if ranks is negative.
func New(ranks int, options ...Option) *Recorder {
	if ranks < 0 {
		panic(fmt.Sprintf("trace: %d ranks", ranks))
	}
	r := &Recorder{maxEvents: DefaultMaxEvents, start: time.Now()}
	for _, option := range options {
		option(r)
	}
	for rank := range ranks {
		r.own = append(r.own, newLane(rank, 0, r.start, r.maxEvents))
	}
	return r
}

// Rank returns the lane of a rank's own stream, nil if r is nil. It panics if
// the world has no such rank.
func (r *Recorder) Rank(rank int) *Lane {
	if r == nil {
		return nil
	}
	if rank < 0 || rank >= len(r.own) {
		panic(fmt.Sprintf("trace: rank %d of a recorder for %d ranks", rank, len(r.own)))
	}
	return r.own[rank]
}

// Stream returns the lane of a further stream of a rank, made at the first use;
// stream 0 is the rank's own. It is nil if r is nil.
func (r *Recorder) Stream(rank, stream int) *Lane {
	own := r.Rank(rank)
	if own == nil || stream == 0 {
		return own
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range r.more {
		if l.rank == rank && l.stream == stream {
			return l
		}
	}
	l := newLane(rank, stream, r.start, r.maxEvents)
	r.more = append(r.more, l)
	return l
}

// Reset forgets all spans and sums and starts the clock again. Spans that are
// open are forgotten too: their End does nothing.
func (r *Recorder) Reset() {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.start = time.Now()
	for _, l := range slices.Concat(r.own, r.more) {
		l.reset(r.start)
	}
}

// all returns the lanes that there are now, and the time that their clocks count from.
func (r *Recorder) all() ([]*Lane, time.Time) {
	if r == nil {
		return nil, time.Time{}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Concat(r.own, r.more), r.start
}
