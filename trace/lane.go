package trace

import (
	"sync"
	"time"
)

// Lane is the time line of one stream of one rank. One goroutine opens and closes
// spans on a lane at a time; reading (Breakdown, WriteJSON) and Reset may happen
// meanwhile. The nil Lane is valid and records nothing.
type Lane struct {
	rank, stream int

	mu     sync.Mutex // uncontended while nobody reads
	start  time.Time  // the clock's zero
	serial uint64     // of the span opened last; goes on over Reset
	open   []frame    // innermost last
	events eventBuffer
	sums   sums
}

// frame is an open span.
type frame struct {
	serial   uint64
	start    time.Duration
	children time.Duration // time in closed spans directly inside
	event    int           // its slot in events, or noEvent
	name     string
	kind     Kind
}

// Span is an open span. It is a value; the zero Span is valid and its methods do
// nothing.
type Span struct {
	lane   *Lane
	serial uint64
	depth  int
}

func newLane(rank, stream int, start time.Time, maxEvents int) *Lane {
	l := &Lane{rank: rank, stream: stream, start: start, open: make([]frame, 0, 16)}
	l.events.init(maxEvents)
	l.sums.init()
	return l
}

func (l *Lane) reset(start time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.start, l.open = start, l.open[:0]
	l.events.n, l.events.dropped = 0, 0
	l.sums.init()
}

// Now returns the time on the recorder's clock: the start for [Lane.Record] and
// [Lane.Collective]. It is 0 if l is nil.
func (l *Lane) Now() time.Duration {
	if l == nil {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Since(l.start)
}

// Begin opens a span inside the ones that are open. The name should be one of
// few (a constant), since ByName adds up by name. It allocates nothing, save a
// chunk of the buffer now and then.
func (l *Lane) Begin(kind Kind, name string) Span {
	if l == nil {
		return Span{}
	}
	return l.begin(kind, event{name: name})
}

func (l *Lane) begin(kind Kind, e event) Span {
	l.mu.Lock()
	now := time.Since(l.start)
	e.kind, e.start, e.dur = kind, now, stillOpen
	l.serial++
	span := Span{lane: l, serial: l.serial, depth: len(l.open)}
	l.open = append(l.open, frame{serial: l.serial, start: now, event: l.events.add(e), name: e.name, kind: kind})
	l.sums.began(now)
	l.mu.Unlock()
	return span
}

// End closes the span and any that was left open inside it (an early return on
// an error may skip their End). A second End does nothing.
func (s Span) End() {
	if s.lane == nil {
		return
	}
	l := s.lane
	l.mu.Lock()
	if s.depth < len(l.open) && l.open[s.depth].serial == s.serial {
		l.closeTo(s.depth, time.Since(l.start), op{})
	}
	l.mu.Unlock()
}

// op is what a collective reports when it ends.
type op struct {
	launches int64
	bytes    int64
	wait     time.Duration
	failure  string
}

// closeTo closes the spans from the innermost to the one at depth. The report
// belongs to the one at depth. l.mu is held.
func (l *Lane) closeTo(depth int, now time.Duration, report op) {
	for i := len(l.open) - 1; i >= depth; i-- {
		f := &l.open[i]
		took := now - f.start
		var r op
		if i == depth {
			r = report
		}
		r = l.sums.ended(f.kind, f.name, took-f.children, now, r)
		if e := l.events.at(f.event); e != nil {
			e.dur = took
			e.report(r)
		}
		if i > 0 {
			l.open[i-1].children += took
		}
	}
	l.open = l.open[:depth]
}

// Record adds a span that ran outside of the caller, such as a kernel between
// two events of a GPU stream: start is on the recorder's clock. It counts inside
// the innermost open span, if there is one. Recorded spans should not overlap.
func (l *Lane) Record(kind Kind, name string, start, dur time.Duration) {
	if l != nil {
		l.record(event{kind: kind, name: name, start: start, dur: dur}, op{})
	}
}

// Collective is Record for a collective: wait is the part of dur spent waiting
// for other ranks, and bytes what this rank sent.
func (l *Lane) Collective(name string, start, dur, wait time.Duration, bytes int64) {
	if l != nil {
		l.record(event{kind: Collective, shape: collectiveArgs, name: name, start: start, dur: dur},
			op{launches: 1, bytes: bytes, wait: wait})
	}
}

func (l *Lane) record(e event, report op) {
	e.dur = max(e.dur, 0)
	l.mu.Lock()
	l.sums.began(e.start)
	e.report(l.sums.ended(e.kind, e.name, e.dur, e.start+e.dur, report))
	l.events.add(e)
	if n := len(l.open); n > 0 {
		l.open[n-1].children += e.dur
	}
	l.mu.Unlock()
}

// Mark notes a moment, such as a preemption or a request's arrival.
func (l *Lane) Mark(name string) {
	if l == nil {
		return
	}
	l.mu.Lock()
	l.events.add(event{shape: mark, name: name, start: time.Since(l.start)})
	l.mu.Unlock()
}
