package eptest_test

import (
	"testing"

	"github.com/weftgo/weft/ep/eptest"
	"github.com/weftgo/weft/internal/gputest"
)

func TestLowLatencyGPU(t *testing.T) {
	gputest.Device(t)
	eptest.TestLowLatency(t, newAlltoall, openGPU)
}

func TestTwinLowLatencyGPU(t *testing.T) {
	gputest.Device(t)
	t.Run("whole calls", func(t *testing.T) { eptest.TestTwinLowLatency(t, newAlltoall, openHost, openGPU) })
	t.Run("in halves", func(t *testing.T) { eptest.TestTwinLowLatency(t, eptest.Halves(newAlltoall), openHost, openGPU) })
}

func TestGraphLowLatencyGPU(t *testing.T) {
	d := gputest.Device(t)
	t.Run("whole calls", func(t *testing.T) { eptest.TestGraphLowLatency(t, eptest.LowLatency(newAlltoall), openGPU, d) })
	t.Run("in halves", func(t *testing.T) { eptest.TestGraphLowLatency(t, eptest.Halves(newAlltoall), openGPU, d) })
}

func TestDelaysLowLatencyGPU(t *testing.T) {
	gputest.Device(t)
	eptest.TestDelays(t, eptest.LowLatency(newAlltoall), openGPU)
}

func TestBriefLowLatencyGPU(t *testing.T) {
	gputest.Device(t)
	eptest.TestBriefLowLatency(t, newAlltoall, openGPU)
}

func TestRoundsGPU(t *testing.T) {
	gputest.Device(t)
	for name, create := range roundsOn {
		t.Run(name, func(t *testing.T) { eptest.TestRounds(t, create, openGPU) })
	}
}
