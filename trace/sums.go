package trace

import (
	"slices"
	"time"
)

// sums are what a lane keeps whether or not it keeps spans.
type sums struct {
	first, last time.Duration // first begin and last end; first is noSpan before any
	self        [numKinds]time.Duration
	names       []NameTotal
	steps       int64
	dummies     int64
	collectives int64
	launches    int64
	bytes       int64
}

const noSpan = time.Duration(-1)

// maxNames bounds a lane's list of names: it is searched at every span.
const maxNames = 64

// OtherNames is the name under which ByName adds up, by kind, what comes after
// the first 64 names of a lane.
const OtherNames = "(other)"

func (s *sums) init() {
	names := s.names[:0]
	if names == nil {
		names = make([]NameTotal, 0, maxNames+int(numKinds))
	}
	*s = sums{first: noSpan, names: names}
}

func (s *sums) began(now time.Duration) {
	if s.first == noSpan || now < s.first {
		s.first = now
	}
}

// ended counts a span of which self was spent outside of inner spans, and
// returns the report as counted: a wait cannot exceed the self time around it.
func (s *sums) ended(kind Kind, name string, self, now time.Duration, r op) op {
	self = max(self, 0)
	r.wait = min(max(r.wait, 0), self)
	s.last = max(s.last, now)
	s.self[kind] += self - r.wait
	s.self[Wait] += r.wait
	s.launches += r.launches
	s.bytes += r.bytes
	switch {
	case kind == Collective:
		s.collectives++
	case kind == Step && name == DummyStep:
		s.dummies++
	case kind == Step:
		s.steps++
	}
	s.count(kind, name, self-r.wait, r.wait)
	return r
}

func (s *sums) count(kind Kind, name string, self, wait time.Duration) {
	i := slices.IndexFunc(s.names, func(t NameTotal) bool { return t.Kind == kind && t.Name == name })
	if i < 0 {
		if len(s.names) >= maxNames && name != OtherNames {
			s.count(kind, OtherNames, self, wait)
			return
		}
		i = len(s.names)
		s.names = append(s.names, NameTotal{Kind: kind, Name: name})
	}
	s.names[i].Count++
	s.names[i].Self += self
	s.names[i].Wait += wait
}
