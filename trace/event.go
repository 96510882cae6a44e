package trace

import "time"

// event is one line of the file to be. Numbers stay numbers until it is written.
type event struct {
	name  string
	note  string        // a collective's failure
	start time.Duration // on the recorder's clock
	dur   time.Duration // stillOpen until the span ends
	args  [4]int64      // as shape says
	kind  Kind
	shape shape
}

const (
	stillOpen = time.Duration(-1)
	noEvent   = -1
)

// shape says what an event's args mean.
type shape uint8

const (
	plain          shape = iota
	stepArgs             // context requests, context tokens, generation requests, generation tokens
	collectiveArgs       // sequence number, launches, bytes sent, wait in ns
	mark                 // a moment; no args
)

// report fills in what a collective knows at its end.
func (e *event) report(r op) {
	if e.shape == collectiveArgs {
		e.args[1], e.args[2], e.args[3], e.note = r.launches, r.bytes, int64(r.wait), r.failure
	}
}

// chunkEvents is the number of events in one allocation of a buffer (88 KiB).
const chunkEvents = 1024

// eventBuffer is a list of events that never moves what it holds, so growing it
// copies nothing.
type eventBuffer struct {
	chunks  [][]event
	n       int
	max     int
	dropped int64 // events beyond max; not counted in totals mode, where max is 0
}

func (b *eventBuffer) init(maxEvents int) {
	b.max = maxEvents
	if maxEvents > 0 {
		b.chunks = append(b.chunks, make([]event, min(chunkEvents, maxEvents)))
	}
}

// add appends e and returns its slot, or noEvent if the buffer is full.
func (b *eventBuffer) add(e event) int {
	if b.n >= b.max {
		if b.max > 0 {
			b.dropped++
		}
		return noEvent
	}
	c := b.n / chunkEvents
	if c == len(b.chunks) {
		b.chunks = append(b.chunks, make([]event, min(chunkEvents, b.max-b.n)))
	}
	b.chunks[c][b.n%chunkEvents] = e
	b.n++
	return b.n - 1
}

// at returns the event of a slot, nil for noEvent.
func (b *eventBuffer) at(slot int) *event {
	if slot == noEvent {
		return nil
	}
	return &b.chunks[slot/chunkEvents][slot%chunkEvents]
}
