package commtest

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/comm"
)

// requireAborted checks that a rank was told that the world died, and whom to blame.
func requireAborted(t testing.TB, err error, rank, blamed int) {
	t.Helper()
	require.ErrorIs(t, err, comm.Aborted)
	var e *comm.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, rank, e.Rank, "%v", err)
	require.Equal(t, blamed, e.Peer, "%v", err)
}

// failures are ranks that fail: the others are told, and told who.
func (s *suite) failures(t *testing.T) {
	boom := errors.New("boom")
	for name, fail := range map[string]func() error{
		"error":  func() error { return boom },
		"panic":  func() error { panic(boom) },
		"goexit": func() error { runtime.Goexit(); return nil },
	} {
		t.Run(name, func(t *testing.T) { s.rankFails(t, fail, name != "goexit", boom) })
	}
	t.Run("abort", s.abort)
	t.Run("context", s.contextEnds)
	t.Run("close", s.closeDead)
	t.Run("reform", s.reform)
	t.Run("reform without a stuck rank", s.reformStuck)
}

// rankFails lets rank 2 fail while the others are in a collective or about to call one.
func (s *suite) rankFails(t *testing.T, fail func() error, wrapped bool, boom error) {
	const ranks, odd = 4, 2
	w := s.world(t, ranks)
	errs := make([]error, ranks)
	err := w.Run(t.Context(), func(ctx context.Context, c *comm.Comm) error {
		// A slow rank may still be in this call when the odd one fails.
		if errs[c.Rank()] = host(ctx, c); errs[c.Rank()] != nil {
			return errs[c.Rank()]
		}
		switch c.Rank() {
		case odd:
			time.Sleep(5 * time.Millisecond)
			return fail()
		case 3: // not in a call when it happens
			<-w.Done()
		}
		errs[c.Rank()] = host(ctx, c)
		return errs[c.Rank()]
	})
	var e *comm.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, odd, e.Rank, "Run returns the error of the rank that failed: %v", err)
	if wrapped {
		require.ErrorIs(t, err, boom)
	}
	require.Equal(t, err, w.Err())
	for _, rank := range []int{0, 1, 3} {
		requireAborted(t, errs[rank], rank, odd)
		require.ErrorIs(t, errs[rank], err)
	}
	err = w.Run(t.Context(), func(context.Context, *comm.Comm) error { return nil })
	require.ErrorIs(t, err, comm.Aborted, "a dead world runs nothing")
}

// abort kills the world from a goroutine that is no rank.
func (s *suite) abort(t *testing.T) {
	w := s.world(t, 3)
	cause := errors.New("enough")
	errs := make([]error, 3)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		time.Sleep(5 * time.Millisecond)
		w.Local()[1].Abort(cause)
		w.Abort(errors.New("too late"))
	}()
	err := w.Run(t.Context(), func(ctx context.Context, c *comm.Comm) error {
		for errs[c.Rank()] == nil {
			if c.Rank() == 2 { // never comes
				<-w.Done()
			}
			errs[c.Rank()] = host(ctx, c)
		}
		return errs[c.Rank()]
	})
	<-stopped
	require.ErrorIs(t, err, cause)
	require.Equal(t, cause, w.Err())
	for _, err := range errs {
		require.ErrorIs(t, err, comm.Aborted)
		require.ErrorIs(t, err, cause)
	}
}

// contextEnds cancels the context of Run.
func (s *suite) contextEnds(t *testing.T) {
	w := s.world(t, 2)
	ctx, cancel := contextWithCancel(t)
	err := w.Run(ctx, func(ctx context.Context, c *comm.Comm) error {
		if c.Rank() == 1 {
			cancel(errors.New("the user left"))
			<-ctx.Done()
			return nil
		}
		return host(ctx, c)
	})
	require.ErrorContains(t, err, "the user left")
	require.ErrorContains(t, w.Err(), "the user left")
}

// closeDead closes a dead world: it waits for nobody.
func (s *suite) closeDead(t *testing.T) {
	w := s.world(t, 3)
	w.Abort(errors.New("dead"))
	begin := time.Now()
	require.NoError(t, w.Local()[1].Close(t.Context()), "one rank alone")
	require.NoError(t, w.Close(t.Context()))
	require.Less(t, time.Since(begin), 5*time.Second)
	require.ErrorIs(t, w.Local()[0].Barrier(comm.Stream{}), comm.Aborted)
	_, err := w.Local()[0].Split(t.Context(), 0, 0)
	require.ErrorIs(t, err, comm.Aborted)
}
