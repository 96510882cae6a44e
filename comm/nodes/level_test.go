package nodes

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/comm/commtest"
	"github.com/weftgo/weft/comm/local"
	"github.com/weftgo/weft/internal/patience"
)

// The levels are groups of the rank's node and column, with what the drivers below can do, and the world's numbers in errors.
func TestLevels(t *testing.T) {
	w := open(t, 2, 3, 0)
	commtest.Run(t, w, func(ctx context.Context, tb testing.TB, c *comm.Comm) {
		inside, between, ok := Levels(c)
		require.True(tb, ok)
		again, _, _ := Levels(c)
		require.Same(tb, inside, again)
		require.Equal(tb, []int{c.Rank() % 3, 3, c.Rank()}, []int{inside.Rank(), inside.Size(), inside.WorldRank()})
		require.Equal(tb, []int{c.Rank() / 3, 2, c.Rank()}, []int{between.Rank(), between.Size(), between.WorldRank()})
		require.Same(tb, w, inside.World())
		for _, level := range []*comm.Comm{inside, between} {
			n := level.Size()
			send, recv, out := make([]int, n), make([]int, n), make([]int32, n)
			src := make([]int32, n)
			for i := range n {
				send[i], recv[i], src[i] = 1, 1, int32(100*c.Rank()+i)
			}
			require.NoError(tb, level.AllToAllV(comm.Stream{}, comm.Host(send), comm.Host(recv), comm.Part{Dst: comm.Of(out, 1), Src: comm.Of(src, 1)}))
			for i, v := range out {
				from := c.Rank()/3*3 + i
				if level == between {
					from = 3*i + c.Rank()%3
				}
				require.EqualValues(tb, 100*from+level.Rank(), v)
			}
			require.EqualValues(tb, 1, level.Stats()[comm.AllToAllV].Calls)
			require.Positive(tb, level.Stats()[comm.AllToAllV].SentBytes)
			require.NoError(tb, level.Close(ctx), "does nothing")
			sub, err := level.Split(ctx, 0, -c.Rank())
			require.NoError(tb, err)
			require.Equal(tb, n-1-level.Rank(), sub.Rank())
			require.NoError(tb, sub.Barrier(comm.Stream{}))
			require.NoError(tb, sub.Close(ctx))
		}
		// Inside node 1 the ranks disagree, and the error says 3 and 4.
		if c.Rank() >= 3 {
			x := comm.Of(make([]float32, c.Rank()), 1)
			err := inside.AllReduce(comm.Stream{}, x, x, comm.Sum)
			var e *comm.Error
			require.ErrorAs(tb, err, &e)
			require.Equal(tb, []any{comm.Invalid, c.Rank()}, []any{e.Code, e.Rank})
			require.Contains(tb, []int{comm.NoPeer, 3, 4, 5}, e.Peer)
			require.ErrorContains(tb, err, "inside node 1")
		}
	})
	require.NoError(t, w.Close(t.Context()))
	inside, _, _ := Levels(w.Local()[0])
	require.ErrorIs(t, inside.Barrier(comm.Stream{}), comm.Invalid)
	other, err := local.Open(local.Config{Ranks: 1})
	require.NoError(t, err)
	_, _, ok := Levels(other.Local()[0])
	require.False(t, ok)
	require.NoError(t, other.Close(t.Context()))
}

// A rank that is late between nodes is the one that all blame, those that wait inside for a rank that waits for it too.
func TestLateBetween(t *testing.T) {
	patience.Try(t, 100*time.Millisecond, func(t testing.TB, wait time.Duration) {
		w := open(t, 3, 2, wait)
		errs := make([]error, 6)
		_ = w.Run(t.Context(), func(ctx context.Context, c *comm.Comm) error {
			inside, between, _ := Levels(c)
			if c.Rank() == 2 {
				<-w.Done()
				return w.Err()
			}
			if errs[c.Rank()] = between.Barrier(comm.Stream{}); errs[c.Rank()] == nil {
				errs[c.Rank()] = inside.Barrier(comm.Stream{})
			}
			return errs[c.Rank()]
		})
		for rank, err := range errs {
			if rank == 2 {
				continue
			}
			var e *comm.Error
			require.ErrorAs(t, err, &e)
			require.Equal(t, []int{rank, 2}, []int{e.Rank, e.Peer}, "%v", err)
		}
		var e *comm.Error
		require.ErrorAs(t, w.Err(), &e)
		require.Contains(t, []int{0, 3, 4}, e.Rank, "who waited for it: %v", e)
		require.NoError(t, w.Close(t.Context()))
	})
}
