package commtest

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"

	"github.com/weftgo/weft/comm"
)

// Run runs fn on every local rank of w, like w.Run, and fails the test when a rank fails. tb is the rank's own: its
// messages name the rank, and FailNow and SkipNow, which end the rank's goroutine, may be called from it. The other ranks
// are then aborted.
func Run(t testing.TB, w *comm.World, fn func(ctx context.Context, tb testing.TB, c *comm.Comm)) {
	t.Helper()
	var state rankState
	err := w.Run(t.Context(), func(ctx context.Context, c *comm.Comm) error {
		fn(ctx, &rankTB{TB: t, rank: c.Rank(), state: &state}, c)
		return nil
	})
	state.mu.Lock()
	defer state.mu.Unlock()
	switch {
	case state.skipped && !t.Failed():
		t.Skip(state.reason)
	case t.Failed():
		t.FailNow()
	case err != nil:
		t.Fatal(err)
	}
}

type rankState struct {
	mu      sync.Mutex
	skipped bool
	reason  string
}

// rankTB is the testing.TB of one rank.
type rankTB struct {
	testing.TB
	rank  int
	state *rankState
}

func (r *rankTB) prefix() string { return fmt.Sprintf("rank %d: ", r.rank) }

func (r *rankTB) Log(args ...any) { r.TB.Helper(); r.TB.Log(r.prefix() + fmt.Sprint(args...)) }
func (r *rankTB) Logf(format string, args ...any) {
	r.TB.Helper()
	r.TB.Log(r.prefix() + fmt.Sprintf(format, args...))
}
func (r *rankTB) Error(args ...any) { r.TB.Helper(); r.TB.Error(r.prefix() + fmt.Sprint(args...)) }
func (r *rankTB) Errorf(format string, args ...any) {
	r.TB.Helper()
	r.TB.Error(r.prefix() + fmt.Sprintf(format, args...))
}
func (r *rankTB) Fatal(args ...any) { r.TB.Helper(); r.Error(args...); r.FailNow() }
func (r *rankTB) Fatalf(format string, args ...any) {
	r.TB.Helper()
	r.Errorf(format, args...)
	r.FailNow()
}

// FailNow ends this rank's goroutine, not the test's.
func (r *rankTB) FailNow() {
	r.Fail()
	runtime.Goexit()
}

func (r *rankTB) Skip(args ...any) { r.skip(fmt.Sprint(args...)) }
func (r *rankTB) Skipf(format string, args ...any) {
	r.skip(fmt.Sprintf(format, args...))
}

// SkipNow ends this rank's goroutine; Run then skips the test.
func (r *rankTB) SkipNow() { r.skip("no reason given") }

func (r *rankTB) skip(reason string) {
	r.state.mu.Lock()
	if !r.state.skipped {
		r.state.skipped, r.state.reason = true, r.prefix()+reason
	}
	r.state.mu.Unlock()
	runtime.Goexit()
}
