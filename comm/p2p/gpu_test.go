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
	"github.com/weftgo/weft/internal/gputest"
	"github.com/weftgo/weft/symm"
)

// device returns cuda:0, whose context then lives until the test ends, or skips.
func device(t testing.TB) *cuda.Device {
	d := gputest.Device(t)
	return d
}

func oneGPU(ranks int) []comm.Device {
	list := make([]comm.Device, ranks)
	for i := range list {
		list[i] = comm.Device{Kind: comm.CUDA}
	}
	return list
}

func openTimeout(t testing.TB, ranks int, timeout time.Duration) *comm.World {
	device(t)
	w, err := Open(t.Context(), Config{Devices: oneGPU(ranks), Timeout: timeout})
	require.NoError(t, err)
	return w
}

func open(t testing.TB, ranks int) *comm.World { return openTimeout(t, ranks, 20*time.Second) }

// world opens a world that is closed when the test ends.
func openWorld(t testing.TB, ranks int, timeout time.Duration) *comm.World {
	w := openTimeout(t, ranks, timeout)
	t.Cleanup(func() { require.NoError(t, w.Close(context.Background())) })
	return w
}

func TestDriver(t *testing.T) {
	d := device(t)
	before := d.Alive()
	commtest.TestDriver(t, open, commtest.Complete(), commtest.Timeouts(openTimeout),
		commtest.Sizes([]int{1, 2, 3, 4, 5, 7, 8}, []int{16, 24}))
	require.Equal(t, before, d.Alive(), "allocations of the device")
}

// TestMemoryComesBack opens and closes worlds, living and dead, and compares the device's free memory.
func TestMemoryComesBack(t *testing.T) {
	d := device(t)
	once := func(kill bool) {
		w := open(t, 3)
		if kill {
			w.Abort(context.Canceled)
		}
		require.NoError(t, w.Close(t.Context()))
	}
	once(false)
	before, _, err := d.Memory()
	require.NoError(t, err)
	alive := d.Alive()
	for i := range 4 {
		once(i%2 == 1)
	}
	after, _, err := d.Memory()
	require.NoError(t, err)
	require.Equal(t, before, after)
	require.Equal(t, alive, d.Alive())
}

// TestRegion writes into peers' memory with a collective whose buffers are regions.
func TestRegion(t *testing.T) {
	w := openWorld(t, 4, 10*time.Second)
	commtest.Run(t, w, func(ctx context.Context, tb testing.TB, c *comm.Comm) {
		r, err := symm.Alloc(ctx, c, 1<<20)
		require.NoError(tb, err)
		mine := r.At(c.Rank(), 256, dtype.I32, 1, 4)
		require.NoError(tb, comm.Copy(c, comm.Stream{}, mine, comm.Of([]int32{int32(c.Rank()), 1, 2, 3}, 4)))
		require.NoError(tb, c.AllReduce(comm.Stream{}, mine, mine, comm.Sum))
		for peer := range c.Size() { // every rank reads every rank's memory
			got := make([]int32, 4)
			require.NoError(tb, comm.Copy(c, comm.Stream{}, comm.Of(got, 4), r.At(peer, 256, dtype.I32, 1, 4)))
			require.Equal(tb, []int32{6, 4, 8, 12}, got)
		}
		require.NoError(tb, c.Barrier(comm.Stream{}))
		require.NoError(tb, c.Wait(ctx, comm.Stream{}))
		require.NoError(tb, r.Close(ctx))
	})
}

// TestAllocationsWhileRanksWait lets seven ranks' kernels wait while the eighth allocates beyond its arena, frees and loads:
// none of it may wait for those kernels.
func TestAllocationsWhileRanksWait(t *testing.T) {
	w := openWorld(t, 8, 4*time.Second)
	commtest.Run(t, w, func(ctx context.Context, tb testing.TB, c *comm.Comm) {
		if c.Rank() == 7 {
			time.Sleep(100 * time.Millisecond)
			for range 3 {
				b, err := comm.Alloc(c, dtype.F32, 1<<20, 100)
				require.NoError(tb, err)
				require.NoError(tb, comm.Free(c, b))
			}
			for _, typ := range dtype.All() { // copies of every type
				b, err := comm.Alloc(c, typ, 3, 5)
				require.NoError(tb, err)
				require.NoError(tb, comm.Copy(c, comm.Stream{}, b.Slice(0, 1), b.Slice(2, 3)))
				require.NoError(tb, c.Wait(ctx, comm.Stream{}))
				require.NoError(tb, comm.Free(c, b))
			}
		}
		require.NoError(tb, c.Barrier(comm.Stream{}))
		require.NoError(tb, c.Wait(ctx, comm.Stream{}))
	})
}

// TestClosed lets a rank close while another waits for it.
func TestClosed(t *testing.T) {
	w := openWorld(t, 3, 10*time.Second)
	start := time.Now()
	commtest.Run(t, w, func(ctx context.Context, tb testing.TB, c *comm.Comm) {
		require.NoError(tb, c.Barrier(comm.Stream{}))
		if c.Rank() == 1 {
			require.NoError(tb, c.Wait(ctx, comm.Stream{}))
			require.NoError(tb, c.Close(ctx))
			require.ErrorIs(tb, c.Barrier(comm.Stream{}), comm.Invalid)
			return
		}
		require.NoError(tb, c.Wait(ctx, comm.Stream{}))
		for range 2 {
			err := c.Barrier(comm.Stream{})
			if err == nil {
				err = c.Wait(ctx, comm.Stream{})
			}
			require.ErrorIs(tb, err, comm.Invalid)
			require.ErrorContains(tb, err, "rank 1 closed")
		}
	})
	require.Less(t, time.Since(start), 5*time.Second)
}
