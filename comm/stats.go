package comm

import (
	"sync/atomic"
	"time"
)

// Stats counts what one Comm did since it was made, by kind of operation: Stats[AllReduce].Calls.
type Stats [NumOpKinds]Count

// Count is the sum over the calls of one kind of operation on one rank.
type Count struct {
	Calls     int64
	Launches  int64         // kernel launches, or calls that the CPU driver ran
	SentBytes int64         // bytes this rank's work moved between two different ranks
	Time      time.Duration // in the call: on the CPU the whole operation, on a GPU the enqueue; of calls below a microsecond a sample
	Wait      time.Duration // of Time, waiting for other ranks (CPU driver)
}

// Add returns the sums of both.
func (s Stats) Add(t Stats) Stats {
	for k := range s {
		s[k] = s[k].plus(t[k], 1)
	}
	return s
}

// Sub returns what was counted since the earlier snapshot t.
func (s Stats) Sub(t Stats) Stats {
	for k := range s {
		s[k] = s[k].plus(t[k], -1)
	}
	return s
}

// Total returns the sum over all kinds.
func (s Stats) Total() Count {
	var sum Count
	for _, c := range s {
		sum = sum.plus(c, 1)
	}
	return sum
}

func (c Count) plus(d Count, sign int64) Count {
	return Count{
		Calls:     c.Calls + sign*d.Calls,
		Launches:  c.Launches + sign*d.Launches,
		SentBytes: c.SentBytes + sign*d.SentBytes,
		Time:      c.Time + time.Duration(sign)*d.Time,
		Wait:      c.Wait + time.Duration(sign)*d.Wait,
	}
}

// counters are the live Stats: written by the rank's goroutine, read by any.
type counters [NumOpKinds]struct{ calls, launches, sent, time, wait tally }

// tally is a number that one goroutine writes and any may read. On amd64 an addition of one writer needs no locked
// instruction: a reader sees the word before it or after it. The race detector is shown an atomic instead.
type tally struct{ n atomic.Int64 }

func (k *counters) add(op *Op, d time.Duration) {
	c := &k[op.Kind]
	c.calls.add(1)
	c.launches.add(int64(op.Stats.Launches))
	c.time.add(int64(d))
	c.sent.add(op.Stats.SentBytes)
	c.wait.add(int64(op.Stats.Wait))
}

// Stats returns a snapshot. Any goroutine may call it; a call in progress is not in it.
func (c *Comm) Stats() Stats {
	var s Stats
	for i := range s {
		k := &c.counters[i]
		s[i] = Count{Calls: k.calls.n.Load(), Launches: k.launches.n.Load(), SentBytes: k.sent.n.Load(),
			Time: time.Duration(k.time.n.Load()), Wait: time.Duration(k.wait.n.Load())}
	}
	return s
}
