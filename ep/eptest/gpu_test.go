package eptest_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weftgo/weft/agrs"
	"github.com/weftgo/weft/alltoall"
	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/comm/p2p"
	"github.com/weftgo/weft/ep"
	"github.com/weftgo/weft/ep/eptest"
	"github.com/weftgo/weft/internal/gputest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// openGPU opens ranks that share GPU 0, or skips.
func openGPU(t testing.TB, ranks int, timeout time.Duration) *comm.World {
	gputest.Device(t)
	list := make([]comm.Device, ranks)
	for i := range list {
		list[i] = comm.Device{Kind: comm.CUDA}
	}
	w, err := p2p.Open(context.Background(), p2p.Config{Devices: list, Timeout: timeout})
	require.NoError(t, err)
	return w
}

func newAlltoall(ctx context.Context, c *comm.Comm, cfg ep.Config) (ep.Exchanger, error) {
	x, err := alltoall.New(ctx, c, cfg)
	if err != nil {
		return nil, err
	}
	return x, nil
}

func newAgrs(ctx context.Context, c *comm.Comm, cfg ep.Config) (ep.Exchanger, error) {
	x, err := agrs.New(ctx, c, cfg)
	if err != nil {
		return nil, err
	}
	return x, nil
}

func TestAlltoallGPU(t *testing.T) {
	gputest.Device(t)
	eptest.TestOn(t, newAlltoall, openGPU)
}

func TestAgrsGPU(t *testing.T) {
	gputest.Device(t)
	eptest.TestOn(t, newAgrs, openGPU)
}

// The twin tests compare every bit with the CPU's.
func TestTwinAlltoallGPU(t *testing.T) {
	gputest.Device(t)
	eptest.TestTwin(t, newAlltoall, openGPU)
}

func TestTwinAgrsGPU(t *testing.T) {
	gputest.Device(t)
	eptest.TestTwin(t, newAgrs, openGPU)
}

// TestTwinPresumGPU makes partial rows where the experts are, as between GPUs.
func TestTwinPresumGPU(t *testing.T) {
	gputest.Device(t)
	t.Setenv("WEFT_COMBINE_PULL", "0")
	eptest.TestTwin(t, newAlltoall, openGPU)
}

// TestGraphGPU captures one graph and replays it with other tokens, and other numbers of them.
func TestGraphGPU(t *testing.T) {
	d := gputest.Device(t)
	for name, create := range map[string]eptest.New{"alltoall": newAlltoall, "agrs": newAgrs} {
		t.Run(name, func(t *testing.T) { eptest.TestGraph(t, create, openGPU, d) })
	}
}

// Both strategies and a replica's all-reduce give the same bits.
func TestSameGPU(t *testing.T) {
	gputest.Device(t)
	eptest.TestSame(t, openGPU, map[string]eptest.New{"agrs": newAgrs, "alltoall": newAlltoall})
}

func TestLargeGPU(t *testing.T) {
	if has := gputest.Device(t).Info().MemoryBytes; has < 48<<30 {
		t.Skipf("this test needs 48 GiB of GPU memory, there are %d", has>>30)
	}
	eptest.TestLarge(t, newAlltoall, openGPU)
}

func TestDelaysGPU(t *testing.T) {
	gputest.Device(t)
	for name, create := range map[string]eptest.New{"alltoall": newAlltoall, "agrs": newAgrs} {
		t.Run(name, func(t *testing.T) { eptest.TestDelays(t, create, openGPU) })
	}
}

// TestBriefGPU is small enough for compute-sanitizer: see benchmarks/gpu/sanitize.sh.
func TestBriefGPU(t *testing.T) {
	gputest.Device(t)
	t.Run("alltoall", func(t *testing.T) { eptest.TestBrief(t, newAlltoall, openGPU, eptest.BriefInvariant) })
	t.Run("agrs", func(t *testing.T) { eptest.TestBrief(t, newAgrs, openGPU) })
}
