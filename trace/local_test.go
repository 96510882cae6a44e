package trace_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/comm/local"
	"github.com/weftgo/weft/internal/patience"
	"github.com/weftgo/weft/trace"
)

// A real world: two ranks wait for the one that comes late, and what the
// recorder counts is what the ranks count.
func TestThePeersOfALateRankWait(t *testing.T) { patience.Try(t, 200*time.Millisecond, peersWait) }

func peersWait(t testing.TB, late time.Duration) {
	w, err := local.Open(local.Config{Ranks: 3})
	require.NoError(t, err)
	defer func() { require.NoError(t, w.Close(context.Background())) }()
	r := trace.New(w.Size())
	require.NoError(t, w.Run(t.Context(), func(_ context.Context, c *comm.Comm) error {
		if err := c.Barrier(comm.Stream{}); err != nil { // all are here
			return err
		}
		c.SetTracer(r)
		step := r.Rank(c.Rank()).BeginStep(1, 8, 0, 0)
		defer step.End()
		if c.Rank() == 1 {
			time.Sleep(late)
		}
		x := []float32{1, 2, 3, 4}
		return c.AllReduce(comm.Stream{}, comm.Of(x, 2), comm.Of(x, 2), comm.Sum)
	}))
	for _, b := range r.Breakdown() {
		require.EqualValues(t, 1, b.NumSteps)
		require.EqualValues(t, 1, b.NumCollectives)
		all := w.Local()[b.Rank].Stats()[comm.AllReduce]
		require.Equal(t, all.SentBytes, b.SentBytes)
		require.Equal(t, all.Launches, b.NumLaunches)
		require.Equal(t, all.Wait, b.Wait)
		if b.Rank == 1 {
			require.GreaterOrEqual(t, b.Compute, late)
		} else {
			require.GreaterOrEqual(t, b.Wait, late/4) // less than late, on a machine that is busy
		}
	}
}
