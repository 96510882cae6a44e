package staged_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/comm/commtest"
	"github.com/weftgo/weft/comm/local"
	"github.com/weftgo/weft/comm/p2p"
	"github.com/weftgo/weft/comm/staged"
	"github.com/weftgo/weft/internal/gputest"
)

// TestGPU runs the conformance suite with the collectives on a GPU that all ranks share.
func TestGPU(t *testing.T) {
	d := gputest.Device(t)
	before := d.Alive()
	for name, cfg := range map[string]staged.Config{"whole": {}, "cut": {Workspace: 8 << 10}} {
		t.Run(name, func(t *testing.T) {
			open := func(t testing.TB, ranks int, timeout time.Duration) *comm.World {
				devices := make([]comm.Device, ranks)
				for i := range devices {
					devices[i].Kind = comm.CUDA
				}
				below, err := p2p.Open(t.Context(), p2p.Config{Devices: devices, Timeout: timeout})
				require.NoError(t, err)
				w, err := staged.Open(below, cfg)
				require.NoError(t, err)
				return w
			}
			commtest.TestDriver(t, func(t testing.TB, ranks int) *comm.World { return open(t, ranks, 4*time.Second) },
				commtest.Complete(), commtest.Timeouts(open), commtest.Sizes([]int{1, 3, 8}, nil))
		})
	}
	require.Equal(t, before, d.Alive(), "allocations of the device")
}

// TestHostBuffers is what staging is for: ranks with Go memory, an operation on the GPU.
func TestHostBuffers(t *testing.T) {
	gputest.Device(t)
	below, err := p2p.Open(t.Context(), p2p.Config{Devices: []comm.Device{{Kind: comm.CUDA}, {Kind: comm.CUDA}}})
	require.NoError(t, err)
	w, err := staged.Open(below, staged.Config{})
	require.NoError(t, err)
	defer func() { require.NoError(t, w.Close(context.Background())) }()
	commtest.Run(t, w, func(_ context.Context, tb testing.TB, c *comm.Comm) {
		x := []float32{1, float32(c.Rank())}
		for range 3 {
			require.NoError(tb, c.AllReduce(comm.Stream{}, comm.Of(x, 2), comm.Of(x, 2), comm.Sum))
		}
		require.Equal(tb, []float32{8, 4}, x)
		require.Equal(tb, "cpu:0", c.Device().String())
	})
}

// TestAllocationsOnGPU counts what the host allocates for a call, with the driver's copies.
func TestAllocationsOnGPU(t *testing.T) {
	gputest.Device(t)
	below, err := p2p.Open(t.Context(), p2p.Config{Devices: []comm.Device{{Kind: comm.CUDA}}})
	require.NoError(t, err)
	w, err := staged.Open(below, staged.Config{})
	require.NoError(t, err)
	c, x := w.Local()[0], comm.Of(make([]float32, 600_000), 1000) // more than the driver's pinned memory
	call := func() {
		if err := c.AllReduce(comm.Stream{}, x, x, comm.Max); err != nil {
			t.Error(err)
		}
	}
	call()
	require.Zero(t, testing.AllocsPerRun(20, call))
	require.NoError(t, w.Close(t.Context()))
}

// TestCost logs what staging costs: the mean time of an all-reduce of eight ranks, beside the CPU driver's.
func TestCost(t *testing.T) {
	gputest.Device(t)
	devices := make([]comm.Device, 8)
	for i := range devices {
		devices[i].Kind = comm.CUDA
	}
	below, err := p2p.Open(t.Context(), p2p.Config{Devices: devices})
	require.NoError(t, err)
	gpu, err := staged.Open(below, staged.Config{})
	require.NoError(t, err)
	cpu, err := local.Open(local.Config{Ranks: 8})
	require.NoError(t, err)
	for _, n := range []int{1 << 10, 1 << 14, 1 << 18} {
		mean := map[string]time.Duration{}
		for name, w := range map[string]*comm.World{"staged": gpu, "local": cpu} {
			const reps = 100
			var start time.Time
			commtest.Run(t, w, func(_ context.Context, tb testing.TB, c *comm.Comm) {
				x := comm.Of(make([]float32, n), n)
				for i := range reps + 5 {
					if i == 5 && c.Rank() == 0 {
						start = time.Now()
					}
					require.NoError(tb, c.AllReduce(comm.Stream{}, x, x, comm.Max))
				}
			})
			mean[name] = time.Since(start) / reps
		}
		t.Logf("RESULT all_reduce of %d KiB, 8 ranks on one GPU: staged %v, local %v a call", 4*n>>10, mean["staged"].Round(100*time.Nanosecond), mean["local"].Round(100*time.Nanosecond))
	}
	require.NoError(t, gpu.Close(t.Context()))
	require.NoError(t, cpu.Close(t.Context()))
}
