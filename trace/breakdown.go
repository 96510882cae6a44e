package trace

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Breakdown is where one lane's time went. The package comment defines the
// parts; Compute + Collective + Wait + Idle = Window.
type Breakdown struct {
	Rank, Stream int
	Window       time.Duration // first begin to last end over all lanes of the recorder
	Compute      time.Duration
	Collective   time.Duration // without Wait
	Wait         time.Duration
	Idle         time.Duration

	NumSteps       int64 // without dummy steps
	NumDummySteps  int64
	NumCollectives int64
	NumLaunches    int64 // as the collectives reported
	SentBytes      int64 // as the collectives reported
	NumDropped     int64 // events that the file lacks; see MaxEvents
}

// Busy returns the time inside spans: Compute + Collective + Wait.
func (b Breakdown) Busy() time.Duration { return b.Compute + b.Collective + b.Wait }

// Shares returns compute, collective and wait as parts of Busy. They add up to
// 1, or are all 0 if nothing was recorded.
func (b Breakdown) Shares() (compute, collective, wait float64) {
	busy := float64(b.Busy())
	if busy == 0 {
		return 0, 0, 0
	}
	return float64(b.Compute) / busy, float64(b.Collective) / busy, float64(b.Wait) / busy
}

// String returns a line such as
// "rank 3: compute 75.0%, collective 15.0%, wait 10.0% of 1.2s busy; idle 0s".
func (b Breakdown) String() string {
	compute, collective, wait := b.Shares()
	who := fmt.Sprintf("rank %d", b.Rank)
	if b.Stream != 0 {
		who += fmt.Sprintf(" stream %d", b.Stream)
	}
	return fmt.Sprintf("%s: compute %.1f%%, collective %.1f%%, wait %.1f%% of %v busy; idle %v",
		who, 100*compute, 100*collective, 100*wait, b.Busy(), b.Idle)
}

// Breakdown returns one entry a lane: ranks 0, 1, ... with their own streams,
// then further streams in order of first use. Streams of one rank overlap in
// time, so their entries are not to be added up. A span counts when it ends: what
// is open now shows as idle, so call it between steps. nil if r is nil.
func (r *Recorder) Breakdown() []Breakdown {
	lanes, _ := r.all()
	if len(lanes) == 0 {
		return nil
	}
	out := make([]Breakdown, len(lanes))
	first, last := noSpan, time.Duration(0)
	for i, l := range lanes {
		l.mu.Lock()
		s := &l.sums
		out[i] = Breakdown{
			Rank: l.rank, Stream: l.stream,
			Compute: s.self[Compute] + s.self[Step], Collective: s.self[Collective], Wait: s.self[Wait],
			NumSteps: s.steps, NumDummySteps: s.dummies, NumCollectives: s.collectives,
			NumLaunches: s.launches, SentBytes: s.bytes, NumDropped: l.events.dropped,
		}
		if s.first != noSpan && (first == noSpan || s.first < first) {
			first = s.first
		}
		last = max(last, s.last)
		l.mu.Unlock()
	}
	for i := range out {
		out[i].Window = max(last-max(first, 0), 0)
		out[i].Idle = max(out[i].Window-out[i].Busy(), 0)
	}
	return out
}

// NameTotal is the sum over the spans of one kind and name.
type NameTotal struct {
	Kind  Kind
	Name  string // "execute" for all steps that are not dummies
	Count int64
	Self  time.Duration // outside of inner spans, without Wait
	Wait  time.Duration // waiting for other ranks, as collectives reported
}

// ByName returns the totals by kind and name over all lanes, most self time
// first: which layers and which collectives the time went to. nil if r is nil.
func (r *Recorder) ByName() []NameTotal {
	type key struct {
		kind Kind
		name string
	}
	lanes, _ := r.all()
	at := make(map[key]int)
	var out []NameTotal
	for _, l := range lanes {
		l.mu.Lock()
		for _, t := range l.sums.names {
			k := key{t.Kind, t.Name}
			i, seen := at[k]
			if !seen {
				i = len(out)
				at[k] = i
				out = append(out, NameTotal{Kind: t.Kind, Name: t.Name})
			}
			out[i].Count += t.Count
			out[i].Self += t.Self
			out[i].Wait += t.Wait
		}
		l.mu.Unlock()
	}
	slices.SortFunc(out, func(a, b NameTotal) int {
		return cmp.Or(cmp.Compare(b.Self, a.Self), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	})
	return out
}
