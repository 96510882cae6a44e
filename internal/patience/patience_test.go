package patience

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// outer is the test that a Try belongs to: its end is the result.
type outer struct {
	testing.TB
	logs  []string
	ended string
}

func (o *outer) Logf(format string, args ...any) {
	o.logs = append(o.logs, fmt.Sprintf(format, args...))
}
func (o *outer) Errorf(format string, args ...any) { o.ended = fmt.Sprintf(format, args...) }
func (o *outer) FailNow()                          { runtime.Goexit() }
func (o *outer) Skip(args ...any)                  { o.ended = "skip " + fmt.Sprint(args...); runtime.Goexit() }

// try runs a test that fails while the wait is shorter than enough.
func try(t *testing.T, enough time.Duration) (o *outer, waits []time.Duration) {
	o = &outer{TB: t}
	apart(func() {
		Try(o, time.Second, func(t testing.TB, wait time.Duration) {
			waits = append(waits, wait)
			require.GreaterOrEqual(t, wait, enough, "too short")
		})
	})
	return o, waits
}

func TestTriesWithLongerWaits(t *testing.T) {
	for n, enough := range []time.Duration{time.Second, 4 * time.Second, 16 * time.Second} {
		o, waits := try(t, enough)
		require.Empty(t, o.ended)
		require.Equal(t, []time.Duration{time.Second, 4 * time.Second, 16 * time.Second}[:n+1], waits)
		require.Len(t, o.logs, n)
		for _, text := range o.logs {
			require.Contains(t, text, "too short")
		}
	}
}

func TestWhatFailsAlwaysFails(t *testing.T) {
	o, waits := try(t, time.Minute)
	require.Len(t, waits, 3)
	require.Contains(t, o.ended, "too short")
	require.True(t, strings.HasPrefix(o.logs[1], "try 2 of 3, which waits for 4s: "), o.logs[1])
}

func TestSkips(t *testing.T) {
	for _, skip := range []func(t testing.TB){
		func(t testing.TB) { t.Skip("no GPU") }, func(t testing.TB) { t.Skipf("no %s", "GPU") },
	} {
		o := &outer{TB: t}
		apart(func() { Try(o, 1, func(t testing.TB, _ time.Duration) { skip(t); t.Error("went on") }) })
		require.Equal(t, "skip no GPU\n", o.ended)
		require.Empty(t, o.logs)
	}
}

// A try cleans up before the next begins, the last made first, its context having ended; also a cleanup may fail it.
func TestEachTryCleansUp(t *testing.T) {
	var done []string
	Try(t, 1, func(t testing.TB, wait time.Duration) {
		ctx := t.Context()
		require.NoError(t, ctx.Err())
		for i := range 2 {
			t.Cleanup(func() {
				require.Error(t, ctx.Err())
				done = append(done, fmt.Sprint(wait, i))
				require.True(t, i == 1 || wait > 1, "fails the first try")
			})
		}
		if wait == 4 {
			t.Fatalf("and this the second: failed %v, skipped %v", t.Failed(), t.Skipped())
		}
	})
	require.Equal(t, []string{"1ns 1", "1ns 0", "4ns 1", "4ns 0"}, done, "the last is the test's own, and not yet over")
}
