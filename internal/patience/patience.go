package patience

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// tries is how often a test may run, each time with a wait that is longer by growth: to 16 times the first.
const tries, growth = 3, 4

// Try runs test with a wait, and while it fails again with longer ones. Each try has its own cleanups and its own context; the
// failures of all but the last are only logged.
func Try(t testing.TB, wait time.Duration, test func(t testing.TB, wait time.Duration)) {
	t.Helper()
	for n := range tries - 1 {
		a := &attempt{TB: t}
		a.ctx, a.cancel = context.WithCancel(t.Context())
		apart(func() { test(a, wait) })
		a.end()
		switch {
		case a.Failed():
			t.Logf("try %d of %d, which waits for %v: %s", n+1, tries, wait, a.text.String())
		case a.skipped:
			t.Skip(a.text.String())
		default:
			return
		}
		wait *= growth
	}
	test(t, wait)
}

// apart runs f on a goroutine of its own, which FailNow and SkipNow may end.
func apart(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	<-done
}

// attempt is the testing.TB of a try that is not the last: what fails it is noted, and does not fail the test.
type attempt struct {
	testing.TB
	ctx      context.Context
	cancel   context.CancelFunc
	mu       sync.Mutex
	failed   bool
	skipped  bool
	text     strings.Builder
	cleanups []func()
}

// end ends the context, then runs the cleanups, the last first.
func (a *attempt) end() {
	a.cancel()
	for {
		a.mu.Lock()
		n := len(a.cleanups)
		if n == 0 {
			a.mu.Unlock()
			return
		}
		f := a.cleanups[n-1]
		a.cleanups = slices.Delete(a.cleanups, n-1, n)
		a.mu.Unlock()
		apart(f)
	}
}

func (a *attempt) Context() context.Context { return a.ctx }

func (a *attempt) Cleanup(f func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.cleanups = append(a.cleanups, f)
}

func (a *attempt) note(text string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.text.WriteString(strings.TrimSpace(text) + "\n")
}

func (a *attempt) Failed() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.failed
}

func (a *attempt) Fail() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.failed = true
}

func (a *attempt) FailNow() {
	a.Fail()
	runtime.Goexit()
}

func (a *attempt) Error(args ...any) {
	a.note(fmt.Sprint(args...))
	a.Fail()
}

func (a *attempt) Errorf(format string, args ...any) { a.Error(fmt.Sprintf(format, args...)) }

func (a *attempt) Fatal(args ...any) {
	a.Error(args...)
	runtime.Goexit()
}

func (a *attempt) Fatalf(format string, args ...any) { a.Fatal(fmt.Sprintf(format, args...)) }

func (a *attempt) Skip(args ...any) {
	a.note(fmt.Sprint(args...))
	a.SkipNow()
}

func (a *attempt) Skipf(format string, args ...any) { a.Skip(fmt.Sprintf(format, args...)) }

func (a *attempt) SkipNow() {
	a.mu.Lock()
	a.skipped = true
	a.mu.Unlock()
	runtime.Goexit()
}

func (a *attempt) Skipped() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.skipped
}
