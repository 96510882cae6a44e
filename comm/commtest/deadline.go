package commtest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/dtype"
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
	t.Run("late rank", s.lateRank)
	t.Run("late rank of a group", s.lateInGroup)
	t.Run("no message", s.noMessage)
	t.Run("split", s.splitDeadline)
	t.Run("slow is not late", s.slowIsNotLate)
}

// lateRank lets one rank sleep beyond the timeout: Timeout naming it on all others, then a dead world.
func (s *suite) lateRank(t *testing.T) {
	const ranks, odd = 5, 3
	w := s.hasty(t, ranks, 100*time.Millisecond)
	errs, again := make([]error, ranks), make([]error, ranks)
	err := w.Run(t.Context(), func(ctx context.Context, c *comm.Comm) error {
		if c.Rank() == odd {
			<-w.Done()
		} else {
			time.Sleep(time.Duration(c.Rank()) * 5 * time.Millisecond)
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
func (s *suite) lateInGroup(t *testing.T) {
	w := s.hasty(t, 4, 100*time.Millisecond)
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
func (s *suite) noMessage(t *testing.T) {
	w := s.hasty(t, 3, 50*time.Millisecond)
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
func (s *suite) splitDeadline(t *testing.T) {
	w := s.hasty(t, 3, time.Minute)
	errs := make([]error, 3)
	_ = w.Run(t.Context(), func(ctx context.Context, c *comm.Comm) error {
		if c.Rank() == 1 {
			<-w.Done()
			return nil
		}
		ctx, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
		defer cancel()
		_, errs[c.Rank()] = c.Split(ctx, 0, 0)
		return errs[c.Rank()]
	})
	requireTimeout(t, errs[0], 0, 1)
	requireTimeout(t, errs[2], 2, 1)
	require.ErrorIs(t, w.Err(), comm.Timeout)
}

// slowIsNotLate lets ranks take turns at being slow, together for longer than the timeout.
func (s *suite) slowIsNotLate(t *testing.T) {
	w := s.hasty(t, 3, 300*time.Millisecond)
	Run(t, w, func(ctx context.Context, tb testing.TB, c *comm.Comm) {
		for i := range 6 {
			if i%3 == c.Rank() {
				time.Sleep(80 * time.Millisecond)
			}
			require.NoError(tb, host(ctx, c))
		}
	})
}
