package commtest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/dtype"
	"github.com/weftgo/weft/internal/patience"
)

func contextWithCancel(t testing.TB) (context.Context, context.CancelCauseFunc) {
	c, cancel := context.WithCancelCause(t.Context())
	t.Cleanup(func() { cancel(nil) })
	return c, cancel
}

// requireTimeout checks that a rank gave up on another.
func requireTimeout(t testing.TB, err error, rank, missing int) {
	t.Helper()
	require.ErrorIs(t, err, comm.Timeout)
	var e *comm.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, rank, e.Rank, "%v", err)
	require.Equal(t, missing, e.Peer, "%v", err)
}

// deadlines are ranks that come late or not at all.
func (s *suite) deadlines(t *testing.T) {
	for _, x := range []struct {
		name string
		wait time.Duration
		test func(t testing.TB, wait time.Duration)
	}{
		{"late rank", 100 * time.Millisecond, s.lateRank},
		{"late rank of a group", 100 * time.Millisecond, s.lateInGroup},
		{"no message", 50 * time.Millisecond, s.noMessage},
		{"split", 50 * time.Millisecond, s.splitDeadline},
		{"slow is not late", 300 * time.Millisecond, s.slowIsNotLate},
	} {
		t.Run(x.name, func(t *testing.T) { patience.Try(t, x.wait, x.test) })
	}
}

// lateRank lets one rank stay away beyond the timeout: Timeout naming it on all others, then a dead world.
func (s *suite) lateRank(t testing.TB, wait time.Duration) {
	const ranks, odd = 5, 3
	w := s.hasty(t, ranks, wait)
	errs, again := make([]error, ranks), make([]error, ranks)
	err := w.Run(t.Context(), func(ctx context.Context, c *comm.Comm) error {
		if c.Rank() == odd {
			<-w.Done()
		} else {
			time.Sleep(time.Duration(c.Rank()) * wait / 20)
		}
		errs[c.Rank()] = host(ctx, c)
		again[c.Rank()] = host(ctx, c)
		return errs[c.Rank()]
	})
	require.ErrorIs(t, err, comm.Timeout)
	for rank := range ranks {
		if rank == odd {
			requireAborted(t, errs[rank], rank, odd)
		} else {
			requireTimeout(t, errs[rank], rank, odd)
			require.ErrorContains(t, errs[rank], "for rank 3")
		}
		requireAborted(t, again[rank], rank, odd)
	}
	require.ErrorIs(t, w.Err(), comm.Timeout)
}

// lateInGroup lets a rank be late in a group: its peers there get Timeout, ranks outside are told.
func (s *suite) lateInGroup(t testing.TB, wait time.Duration) {
	w := s.hasty(t, 4, wait)
	errs := make([]error, 4)
	_ = w.Run(t.Context(), func(ctx context.Context, c *comm.Comm) error {
		sub, err := c.Split(ctx, c.Rank()%2, 0)
		if err != nil {
			return err
		}
		switch c.Rank() {
		case 3:
			<-w.Done()
		case 1:
			errs[1] = host(ctx, sub)
		default:
			for errs[c.Rank()] == nil {
				errs[c.Rank()] = host(ctx, sub)
			}
		}
		return nil
	})
	requireTimeout(t, errs[1], 1, 3)
	requireAborted(t, errs[0], 0, 3)
	requireAborted(t, errs[2], 2, 3)
}

// noMessage waits for a message that nobody sends.
func (s *suite) noMessage(t testing.TB, wait time.Duration) {
	w := s.hasty(t, 3, wait)
	var got error
	buffers := make([]comm.Buffer, 1)
	Run(t, w, func(ctx context.Context, tb testing.TB, c *comm.Comm) {
		if c.Rank() == 0 {
			buffers[0] = alloc(tb, c, dtype.F32, 1, 4, 0).view
		}
	})
	_ = w.Run(t.Context(), func(ctx context.Context, c *comm.Comm) error {
		if c.Rank() != 0 {
			<-w.Done()
			return nil
		}
		if got = c.Recv(comm.Stream{}, buffers[0], 2); got == nil {
			got = c.Wait(ctx, comm.Stream{})
		}
		return got
	})
	requireTimeout(t, got, 0, 2)
}

// splitDeadline ends the wait of a Split by its own context.
func (s *suite) splitDeadline(t testing.TB, wait time.Duration) {
	w := s.hasty(t, 3, time.Minute)
	errs := make([]error, 3)
	_ = w.Run(t.Context(), func(ctx context.Context, c *comm.Comm) error {
		if c.Rank() == 1 {
			<-w.Done()
			return nil
		}
		ctx, cancel := context.WithTimeout(ctx, wait)
		defer cancel()
		_, errs[c.Rank()] = c.Split(ctx, 0, 0)
		return errs[c.Rank()]
	})
	requireTimeout(t, errs[0], 0, 1)
	requireTimeout(t, errs[2], 2, 1)
	require.ErrorIs(t, w.Err(), comm.Timeout)
}

// slowIsNotLate lets ranks take turns at being slow, together for longer than the timeout.
func (s *suite) slowIsNotLate(t testing.TB, wait time.Duration) {
	w := s.hasty(t, 3, wait)
	Run(t, w, func(ctx context.Context, tb testing.TB, c *comm.Comm) {
		for i := range 6 {
			if i%3 == c.Rank() {
				time.Sleep(wait / 15 * 4)
			}
			require.NoError(tb, host(ctx, c))
		}
	})
}
