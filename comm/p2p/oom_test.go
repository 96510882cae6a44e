package p2p

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/comm/commtest"
	"github.com/weftgo/weft/cuda"
	"github.com/weftgo/weft/dtype"
)

// TestOutOfMemory asks for more than the device has, at Open and later: an error at once with the bytes, and a world that goes on.
func TestOutOfMemory(t *testing.T) {
	memoryComesBack(t)
	d := device(t)
	_, total, err := d.Memory()
	require.NoError(t, err)
	start := time.Now()
	_, err = Open(t.Context(), Config{Devices: oneGPU(3), Workspace: total / 2}) // the third rank's does not fit
	require.ErrorIs(t, err, comm.Unavailable)
	require.ErrorIs(t, err, cuda.OutOfMemory)
	require.ErrorContains(t, err, "on cuda:0")
	t.Logf("RESULT open beyond memory, after %v: %v", time.Since(start).Round(time.Millisecond), err)
	w := openWorld(t, 4, 10*time.Second)
	commtest.Run(t, w, func(ctx context.Context, tb testing.TB, c *comm.Comm) {
		if c.Rank() == 1 {
			start := time.Now()
			_, err := comm.Alloc(c, dtype.F32, total/4, 2)
			require.ErrorIs(tb, err, comm.Unavailable)
			require.ErrorIs(tb, err, cuda.OutOfMemory)
			require.ErrorContains(tb, err, "alloc: rank 1: unavailable: f32[")
			tb.Logf("RESULT alloc beyond memory, after %v: %v", time.Since(start).Round(time.Millisecond), err)
		}
		x := must(tb, c, dtype.F32, 100, 1000)
		require.NoError(tb, c.AllReduce(comm.Stream{}, x, x, comm.Sum))
		require.NoError(tb, c.Wait(ctx, comm.Stream{}))
	})
}
