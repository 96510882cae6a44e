package p2p

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/comm/commtest"
	"github.com/weftgo/weft/internal/gputest"
)

// TestDriverOverGPUs runs the suite with ranks on two GPUs: two that have one each, and three and eight that share. Where the suite
// goes on without some ranks, both GPUs have others: what is left on a GPU without survivors stays there, and TestWithoutAGPU
// looks at that.
func TestDriverOverGPUs(t *testing.T) {
	devices := gputest.Devices(t, 2)
	var before []int
	for _, d := range devices {
		before = append(before, d.Alive())
	}
	open := func(t testing.TB, ranks int, timeout time.Duration) *comm.World {
		list := make([]comm.Device, ranks)
		for i := range list {
			list[i] = comm.Device{Kind: comm.CUDA, Index: (i + 1) / 2 % 2}
		}
		w, err := Open(t.Context(), Config{Devices: list, Timeout: timeout})
		require.NoError(t, err)
		return w
	}
	commtest.TestDriver(t, func(t testing.TB, ranks int) *comm.World { return open(t, ranks, 20*time.Second) },
		commtest.Complete(), commtest.Timeouts(open), commtest.Sizes([]int{2, 3, 8}, nil))
	for i, d := range devices {
		require.Equal(t, before[i], d.Alive(), "allocations of device %d", i)
	}
}
