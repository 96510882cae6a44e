package commtest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/dtype"
)

// reform lets ranks of a world be gone, twice, and the others go on in a new one.
func (s *suite) reform(t *testing.T) {
	const ranks = 5
	w := s.world(t, ranks)
	_, err := w.Without(t.Context(), 1)
	require.ErrorIs(t, err, comm.Invalid, "it lives")
	require.ErrorContains(t, err, "world without ranks [1]")
	left := []int{0, 1, 2, 3, 4} // by their first numbers
	for _, gone := range [][]int{{2}, {3, 0}} {
		err := w.Run(t.Context(), func(ctx context.Context, c *comm.Comm) error {
			if c.Rank() == gone[0] {
				return errors.New("boom")
			}
			return host(ctx, c)
		})
		require.Equal(t, gone[0], comm.Blamed(err), "%v", err)
		for _, wrong := range [][]int{nil, {-1}, {len(left)}, {1, 1}} {
			_, err := w.Without(t.Context(), wrong...)
			require.ErrorIs(t, err, comm.Invalid, "%v", wrong)
		}
		next, err := w.Without(t.Context(), gone...)
		if errors.Is(err, comm.Unavailable) && !s.complete {
			t.Skip(err)
		}
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, next.Close(context.WithoutCancel(t.Context()))) })
		_, err = w.Without(t.Context(), gone...)
		require.ErrorIs(t, err, comm.Invalid)
		require.ErrorContains(t, err, "given up")
		var list []int
		for i, r := range left {
			if i != gone[0] && (len(gone) < 2 || i != gone[1]) {
				list = append(list, r)
			}
		}
		w, left = next, list
		require.Equal(t, len(left), w.Size())
		Run(t, w, func(ctx context.Context, tb testing.TB, c *comm.Comm) {
			require.Equal(tb, len(left), c.Size())
			require.Equal(tb, c.Rank(), c.WorldRank())
			all, err := comm.Alloc(c, dtype.I32, len(left), 1)
			require.NoError(tb, err)
			require.NoError(tb, c.AllGather(comm.Stream{}, all, int32s(tb, c, left[c.Rank()])))
			require.NoError(tb, c.Wait(ctx, comm.Stream{}))
			got := download(tb, c, all)
			for i, r := range left {
				require.EqualValues(tb, r, integer(got, i))
			}
		})
	}
}

// reformStuck leaves a rank behind that never returns, once the others have left Run.
func (s *suite) reformStuck(t *testing.T) {
	const ranks, stuck = 3, 1
	w := s.world(t, ranks)
	release, slow, told, ended := make(chan struct{}), make(chan struct{}), make(chan int, ranks), make(chan error, 1)
	go func() {
		ended <- w.Run(t.Context(), func(ctx context.Context, c *comm.Comm) error {
			if c.Rank() == stuck {
				<-release
				return errors.New("at last")
			}
			_ = host(ctx, c)
			told <- c.Rank()
			if c.Rank() == 2 {
				<-slow
			}
			return errors.New("it does not come")
		})
	}()
	time.Sleep(5 * time.Millisecond)
	w.Abort(&comm.Error{Op: "watchdog", Rank: 0, Peer: stuck, Code: comm.Timeout, Err: errors.New("it looks stuck")})
	require.Equal(t, stuck, comm.Blamed(w.Err()))
	<-told
	<-told
	limit, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err := w.Without(limit, stuck)
	if err != nil && !errors.Is(err, comm.Unavailable) {
		require.ErrorIs(t, err, comm.Timeout)
		require.Equal(t, 2, comm.Blamed(err), "%v", err)
	}
	close(slow)
	next, err := w.Without(t.Context(), stuck)
	if errors.Is(err, comm.Unavailable) && !s.complete {
		close(release)
		<-ended
		t.Skip(err)
	}
	require.NoError(t, err)
	Run(t, next, func(ctx context.Context, tb testing.TB, c *comm.Comm) { require.NoError(tb, host(ctx, c)) })
	close(release)
	require.Error(t, <-ended)
	require.NoError(t, next.Close(t.Context()))
}
