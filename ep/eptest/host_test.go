package eptest_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/comm/local"
	"github.com/weftgo/weft/ep/eptest"
)

func openHost(t testing.TB, ranks int, timeout time.Duration) *comm.World {
	w, err := local.Open(local.Config{Ranks: ranks, Timeout: timeout})
	require.NoError(t, err)
	return w
}

// Both strategies and a replica's all-reduce give the same bits on the CPU too.
func TestSame(t *testing.T) {
	eptest.TestSame(t, openHost, map[string]eptest.New{"agrs": newAgrs, "alltoall": newAlltoall})
}

func TestRounds(t *testing.T) {
	for name, create := range roundsOn {
		t.Run(name, func(t *testing.T) { eptest.TestRounds(t, create, openHost) })
	}
}

var roundsOn = map[string]eptest.New{"alltoall": newAlltoall, "agrs": newAgrs, "low latency": eptest.LowLatency(newAlltoall), "low latency in halves": eptest.Halves(newAlltoall)}

func TestBrief(t *testing.T) {
	t.Run("alltoall", func(t *testing.T) { eptest.TestBrief(t, newAlltoall, openHost, eptest.BriefInvariant) })
	t.Run("agrs", func(t *testing.T) { eptest.TestBrief(t, newAgrs, openHost) })
}
