package agrs_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/comm/p2p"
	"github.com/weftgo/weft/ep/eptest"
	"github.com/weftgo/weft/internal/gputest"
)

// openGPU opens ranks that share GPU 0, or skips.
func openGPU(t testing.TB, ranks int, timeout time.Duration) *comm.World {
	gputest.Device(t)
	list := make([]comm.Device, ranks)
	for i := range list {
		list[i] = comm.Device{Kind: comm.CUDA}
	}
	w, err := p2p.Open(t.Context(), p2p.Config{Devices: list, Timeout: timeout})
	require.NoError(t, err)
	return w
}

func TestConformanceGPU(t *testing.T) {
	gputest.Device(t)
	eptest.TestOn(t, create, openGPU)
}

// TestTwinGPU compares every bit with the CPU's.
func TestTwinGPU(t *testing.T) {
	gputest.Device(t)
	eptest.TestTwin(t, create, openGPU)
}
