package par

import (
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// withProcs pretends to have numProcs cores, so that helpers are recruited on any machine.
func withProcs(t testing.TB, numProcs int) {
	old := runtime.GOMAXPROCS(numProcs)
	t.Cleanup(func() { runtime.GOMAXPROCS(old) })
}

func TestForCoversEachIndexOnce(t *testing.T) {
	withProcs(t, 4)
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 500).Draw(t, "n")
		grain := rapid.IntRange(-1, 600).Draw(t, "grain")
		seen := make([]int32, n)
		For(n, grain, func(lo, hi int) {
			if lo >= hi || hi > n {
				t.Errorf("range [%d,%d) of %d", lo, hi, n)
			}
			for i := lo; i < hi; i++ {
				seen[i]++ // no atomics: the race detector checks that ranges are disjoint
			}
		})
		for i, s := range seen {
			require.Equal(t, int32(1), s, "index %d", i)
		}
	})
	require.Zero(t, settled())
}

// settled waits for helpers that were scheduled too late to find work, and returns the active count.
func settled() int32 {
	for range 1000 {
		if active() == 0 {
			return 0
		}
		time.Sleep(time.Millisecond)
	}
	return active()
}

func TestForManyCallersAndNested(t *testing.T) {
	withProcs(t, 3)
	var total atomic.Int64
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			for range 20 {
				For(40, 3, func(lo, hi int) {
					For(hi-lo, 1, func(lo, hi int) { total.Add(int64(hi - lo)) })
				})
			}
		})
	}
	wg.Wait()
	require.EqualValues(t, 64*20*40, total.Load())
	require.Zero(t, settled())
}

func TestForUsesAnIdleCore(t *testing.T) {
	withProcs(t, 2)
	for _, enter := range []bool{false, true} {
		if enter {
			Enter()
			defer Leave()
		}
		meet()
	}
}

func meet() {
	var entered sync.WaitGroup
	entered.Add(2)
	For(2, 1, func(lo, hi int) { // each chunk waits for the other: only two goroutines can finish this
		entered.Done()
		entered.Wait()
	})
}

func TestForRecruitsNobodyWhenBusy(t *testing.T) {
	withProcs(t, 2)
	Enter() // this goroutine
	Enter() // a rank on the other core
	defer Leave()
	defer Leave()
	running := 0
	For(100, 1, func(lo, hi int) { running++ }) // a helper would make this a race
	require.Equal(t, 100, running)
}

func TestForPanicOnCaller(t *testing.T) {
	withProcs(t, 1)
	require.PanicsWithValue(t, "boom", func() { For(10, 1, func(lo, hi int) { panic("boom") }) })
	withProcs(t, 2)
	Enter()
	Enter()
	calls := 0
	require.PanicsWithValue(t, "boom", func() {
		For(10, 1, func(lo, hi int) {
			calls++
			panic("boom")
		})
	})
	Leave()
	Leave()
	require.Equal(t, 1, calls, "chunks after the panic are skipped")
	require.Zero(t, settled())
}

// onHelper runs fn on a helper goroutine of a loop of two chunks, and nothing on the caller.
func onHelper(fn func()) {
	var entered sync.WaitGroup
	entered.Add(2)
	gate := make(chan struct{})
	self := goid()
	For(2, 1, func(lo, hi int) {
		entered.Done()
		entered.Wait()
		if goid() != self {
			defer close(gate)
			fn()
			return
		}
		<-gate
	})
}

func goid() string {
	buf := make([]byte, 32)
	buf = buf[:runtime.Stack(buf, false)]
	for i, c := range buf[len("goroutine "):] {
		if c == ' ' {
			return string(buf[:len("goroutine ")+i])
		}
	}
	return string(buf)
}

func TestForPanicOnHelperReachesCaller(t *testing.T) {
	withProcs(t, 2)
	cause := errors.New("boom")
	defer func() {
		p, ok := recover().(*Panic)
		require.True(t, ok)
		require.ErrorIs(t, p, cause)
		require.Contains(t, string(p.Stack), "onHelper")
		require.Zero(t, settled())
	}()
	onHelper(func() { panic(cause) })
	t.Error("no panic")
}

func TestForGoexitOnHelperReachesCaller(t *testing.T) {
	withProcs(t, 2)
	returned := false
	var wg sync.WaitGroup
	wg.Go(func() {
		onHelper(runtime.Goexit)
		returned = true
	})
	wg.Wait()
	require.False(t, returned)
	require.Zero(t, settled())
}

func TestForAllocatesNothing(t *testing.T) {
	var total atomic.Int64
	fn := func(lo, hi int) { total.Add(int64(hi - lo)) }
	require.LessOrEqual(t, testing.AllocsPerRun(200, func() { For(1000, 10, fn) }), 0.5)
}

func BenchmarkFor(b *testing.B) {
	fn := func(lo, hi int) {}
	b.Run("one chunk", func(b *testing.B) {
		for b.Loop() {
			For(64, 64, fn)
		}
	})
	b.Run("8 chunks idle", func(b *testing.B) {
		for b.Loop() {
			For(64, 8, fn)
		}
	})
	b.Run("8 chunks busy", func(b *testing.B) {
		for range runtime.GOMAXPROCS(0) {
			Enter()
			defer Leave()
		}
		for b.Loop() {
			For(64, 8, fn)
		}
	})
}
