package clock

import (
	"math/bits"
	"sync/atomic"
	"time"
)

// Stamp is a moment in units of the counter.
type Stamp uint64

// origin is the moment that the rate is measured from.
var origin = both()

// moment is one moment on both clocks.
type moment struct {
	stamp  Stamp
	time   time.Time
	within Stamp // how far apart the readings may be
}

// both reads the time between two stamps, and of a few tries takes the one that was disturbed least.
func both() (best moment) {
	for i := range 3 {
		before, now, after := Read(), time.Now(), Read()
		if m := (moment{before, now, after - before}); i == 0 || m.within < best.within {
			best = m
		}
	}
	return best
}

// settled is the nanoseconds of a unit in 2^-32, 0 as long as the process is too young to know.
var settled atomic.Uint64

// settleTime is how long the two clocks are compared. Reading both takes 0.2 us, so the rate is right to a few parts in a million,
// unless the process is stopped between the readings: see measure.
const settleTime = 50 * time.Millisecond

// Elapsed returns the time since s; 0 if s is later than now, which stamps of different cores may be by nanoseconds.
func (s Stamp) Elapsed() time.Duration { return Read().Sub(s) }

// Sub returns the time from begin to s; 0 if begin is later.
func (s Stamp) Sub(begin Stamp) time.Duration {
	if s <= begin {
		return 0
	}
	rate := settled.Load()
	if rate == 0 {
		rate = measure()
	}
	hi, lo := bits.Mul64(uint64(s-begin), rate)
	return time.Duration(hi<<32 | lo>>32)
}

// measure returns the rate so far, and settles it when it is exact enough.
func measure() uint64 { return measureAt(both()) }

func measureAt(now moment) uint64 {
	d, units := now.time.Sub(origin.time), now.stamp-origin.stamp
	rate := rateOf(d, units)
	if d >= settleTime && now.within < units>>12 { // else the process was stopped between two readings
		settled.CompareAndSwap(0, rate)
	}
	return rate
}

// rateOf is d/units in 2^-32 ns.
func rateOf(d time.Duration, units Stamp) uint64 {
	hi, lo := uint64(d)>>32, uint64(d)<<32
	if units == 0 || hi >= uint64(units) {
		return 1 << 32
	}
	rate, _ := bits.Div64(hi, lo, uint64(units))
	return rate
}
