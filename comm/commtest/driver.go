package commtest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/comm"
)

// Option changes what TestDriver expects.
type Option func(*suite)

// Complete makes Unavailable a failure: the driver claims to do everything.
func Complete() Option { return func(s *suite) { s.complete = true } }

// Timeouts lets the suite open worlds with a short timeout. Without it the cases about deadlines are skipped.
func Timeouts(open func(t testing.TB, ranks int, timeout time.Duration) *comm.World) Option {
	return func(s *suite) { s.openTimeout = open }
}

// Sizes replaces the numbers of ranks that the suite tries: 1, 2, 3, 4, 7, 8 in full, and 16 and 64 in brief.
func Sizes(full, brief []int) Option {
	return func(s *suite) { s.full, s.brief = full, brief }
}

// TestDriver runs the suite. open makes a world of the given number of ranks, all in this process; the suite closes it.
func TestDriver(t *testing.T, open func(t testing.TB, ranks int) *comm.World, options ...Option) {
	s := &suite{open: open, full: []int{1, 2, 3, 4, 7, 8}, brief: []int{16, 64}}
	for _, o := range options {
		o(s)
	}
	if testing.Short() {
		s.full, s.brief = shorten(s.full), nil
	}
	for _, ranks := range s.full {
		t.Run(fmt.Sprintf("Ranks%d", ranks), func(t *testing.T) { s.collectives(t, ranks) })
	}
	for _, ranks := range s.brief {
		t.Run(fmt.Sprintf("Ranks%d", ranks), func(t *testing.T) { s.brieflyAll(t, ranks) })
	}
	t.Run("Sums", s.sums)
	t.Run("Messages", s.messages)
	t.Run("Mismatch", s.mismatches)
	t.Run("Split", s.splits)
	t.Run("Failure", s.failures)
	t.Run("Deadline", s.deadlines)
}

// shorten keeps the first, the third and the last of a list, such as 1, 3 and 8 ranks.
func shorten(n []int) []int {
	if len(n) <= 3 {
		return n
	}
	return []int{n[0], n[2], n[len(n)-1]}
}

type suite struct {
	open        func(t testing.TB, ranks int) *comm.World
	openTimeout func(t testing.TB, ranks int, timeout time.Duration) *comm.World
	complete    bool
	full, brief []int
}

// most returns the largest of the worlds that the suite tries in full.
func (s *suite) most() int { return s.full[len(s.full)-1] }

// world opens a world that is closed when the test ends.
func (s *suite) world(t testing.TB, ranks int) *comm.World {
	w := s.open(t, ranks)
	return closing(t, w, ranks)
}

// hasty opens a world with a timeout, or skips.
func (s *suite) hasty(t testing.TB, ranks int, timeout time.Duration) *comm.World {
	if s.openTimeout == nil {
		t.Skip("this driver's test gives no commtest.Timeouts")
	}
	return closing(t, s.openTimeout(t, ranks, timeout), ranks)
}

func closing(t testing.TB, w *comm.World, ranks int) *comm.World {
	require.Equal(t, ranks, w.Size())
	require.Len(t, w.Local(), ranks, "the suite needs all ranks in this process")
	t.Cleanup(func() { require.NoError(t, w.Close(t.Context())) })
	return w
}

// ledger notes what a driver could and could not do.
type ledger struct {
	mu          sync.Mutex
	complete    bool
	ran         int
	unavailable string
}

// settle reports whether err is nil. Unavailable is noted; any other error ends the rank.
func (l *ledger) settle(tb testing.TB, what fmt.Stringer, err error) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil {
		l.ran++
		return true
	}
	if errors.Is(err, comm.Unavailable) && !l.complete {
		if l.unavailable == "" {
			tb.Logf("left out: %v: %v", what, err)
		}
		l.unavailable = err.Error()
		return false
	}
	tb.Fatalf("%v: %v", what, err)
	return false
}

// finish skips the test if nothing of it could run.
func (l *ledger) finish(t *testing.T) {
	if l.ran == 0 && l.unavailable != "" {
		t.Skip(l.unavailable)
	}
	require.NotZero(t, l.ran, "no case ran")
}

// trials runs cases one after another on all ranks of a new world.
func (s *suite) trials(t *testing.T, ranks int, cases []trial) {
	w := s.world(t, ranks)
	l := &ledger{complete: s.complete}
	problems := make([]*problem, len(cases))
	for i, x := range cases {
		problems[i] = x.pose()
	}
	Run(t, w, func(ctx context.Context, tb testing.TB, c *comm.Comm) {
		for _, x := range problems {
			_, err := x.try(tb, c)
			l.settle(tb, x, err)
		}
	})
	l.finish(t)
}
