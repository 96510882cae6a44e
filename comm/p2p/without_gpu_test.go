package p2p

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/comm/commtest"
	"github.com/weftgo/weft/internal/gputest"
)

// TestWithoutAGPU leaves a rank behind whose GPU no other one uses: nothing is freed there, and everything elsewhere.
func TestWithoutAGPU(t *testing.T) {
	devices := gputest.Devices(t, 3)
	alive := func() (n [3]int) {
		for i, d := range devices {
			n[i] = d.Alive()
		}
		return n
	}
	before := alive()
	gpu := func(i int) comm.Device { return comm.Device{Kind: comm.CUDA, Index: i} }
	w, err := Open(t.Context(), Config{Devices: []comm.Device{gpu(0), gpu(1), gpu(0), gpu(2)}, Timeout: 20 * time.Second})
	require.NoError(t, err)
	gone := w.Local()[1].Conn().(*conn).r
	open := alive()
	require.Greater(t, open[1], before[1])
	err = w.Run(t.Context(), func(ctx context.Context, c *comm.Comm) error {
		if c.Rank() == 1 {
			return errors.New("its GPU fell off the bus")
		}
		return errors.Join(c.Barrier(comm.Stream{}), c.Wait(ctx, comm.Stream{}))
	})
	require.Equal(t, 1, comm.Blamed(err), "%v", err)
	next, err := w.Without(t.Context(), 1)
	require.NoError(t, err)
	require.Equal(t, open[1], devices[1].Alive(), "the GPU that is gone was touched")
	require.NotNil(t, gone.gpu.aux, "its stream was destroyed")
	require.NotNil(t, gone.gpu.kernels, "its kernels were unloaded")
	require.NotEmpty(t, gone.arena.release, "its memory was unmapped")
	commtest.Run(t, next, func(ctx context.Context, tb testing.TB, c *comm.Comm) {
		require.Equal(tb, []comm.Device{gpu(0), gpu(0), gpu(2)}[c.Rank()], c.Device())
		require.NoError(tb, c.Barrier(comm.Stream{}))
		require.NoError(tb, c.Wait(ctx, comm.Stream{}))
	})
	require.NoError(t, next.Close(t.Context()))
	require.NoError(t, w.Close(t.Context()))
	after := alive()
	require.Equal(t, open[1], after[1])
	require.Equal(t, before[2], after[2])
	// The abort word that all kernels look at stays where the first rank allocated it.
	require.LessOrEqual(t, after[0], before[0]+1)
}
