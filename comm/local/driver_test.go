package local

import (
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/comm/commtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t testing.TB, ranks int) *comm.World { return openTimeout(t, ranks, 0) }

func openTimeout(t testing.TB, ranks int, timeout time.Duration) *comm.World {
	w, err := Open(Config{Ranks: ranks, Timeout: timeout})
	require.NoError(t, err)
	return w
}

func TestDriver(t *testing.T) {
	commtest.TestDriver(t, open, commtest.Complete(), commtest.Timeouts(openTimeout))
}

// With a processor for every rank, as the Go scheduler sees it, meetings are not led.
func TestDriverNotLed(t *testing.T) {
	procs := runtime.GOMAXPROCS(MaxRanks)
	defer runtime.GOMAXPROCS(procs)
	commtest.TestDriver(t, open, commtest.Complete(), commtest.Timeouts(openTimeout), commtest.Sizes([]int{2, 3, 8}, []int{17}))
}
