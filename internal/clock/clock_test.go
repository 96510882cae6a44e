package clock

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The readings of both clocks are not taken at one moment, and the process may be stopped between them: one good try of
// many is enough, a wrong rate has none.
func TestElapsedAgreesWithTheTimePackage(t *testing.T) {
	for range 50 {
		begin, stamp := time.Now(), Read()
		time.Sleep(20 * time.Millisecond)
		got, want := stamp.Elapsed(), time.Since(begin)
		if d := (got - want).Abs(); d < want/500 {
			return
		}
	}
	t.Fatal("the two clocks never agreed to 0.2 percent in 50 tries")
}

func TestSettles(t *testing.T) {
	time.Sleep(settleTime)
	first := measure()
	require.NotZero(t, settled.Load())
	require.InEpsilon(t, settled.Load(), first, 0.01)
}

// Readings that are far apart, as those of a process that was stopped between them, settle nothing.
func TestStoppedBetweenReadings(t *testing.T) {
	now, rate := both(), settled.Load()
	defer settled.Store(rate)
	for within, want := range map[Stamp]bool{1: true, now.stamp - origin.stamp: false} {
		settled.Store(0)
		now.time, now.within = origin.time.Add(settleTime), within
		require.NotZero(t, measureAt(now))
		require.Equal(t, want, settled.Load() != 0, "within %d", within)
	}
}

func TestSubIsNeverNegative(t *testing.T) {
	require.Zero(t, Stamp(5).Sub(7))
	require.Zero(t, Stamp(5).Sub(5))
	require.Less(t, Read().Sub(Read()), time.Second)
}

func TestRateOf(t *testing.T) {
	require.EqualValues(t, 1<<32, rateOf(time.Second, 1e9), "nanoseconds")
	require.EqualValues(t, 1<<31, rateOf(time.Second, 2e9), "2 GHz")
	require.EqualValues(t, 1<<32, rateOf(time.Second, 0), "no unit has passed")
	require.EqualValues(t, 1<<32, rateOf(200*time.Hour, 1), "a counter that stands still")
}

func BenchmarkRead(b *testing.B) {
	for b.Loop() {
		_ = Read()
	}
}

func BenchmarkElapsed(b *testing.B) {
	begin := Read()
	for b.Loop() {
		_ = begin.Elapsed()
	}
}

func BenchmarkPause(b *testing.B) {
	for b.Loop() {
		Pause()
	}
}
