package main

import (
	"bytes"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/internal/gputest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRun(t *testing.T) {
	for _, c := range []struct{ ranks, tokens, layouts int }{{1, 3, 4}, {3, 20, 6}, {8, 5, 6}, {2, 0, 6}} {
		var out bytes.Buffer
		require.NoError(t, run(&out, c.ranks, c.tokens, ""))
		require.Equal(t, c.layouts, strings.Count(out.String(), "largest difference to one rank"), out.String())
		require.Equal(t, c.ranks > 1, strings.Contains(out.String(), "exchanger alltoall"))
		require.Equal(t, c.ranks > 1, strings.Contains(out.String(), "rank 0: 2 collectives"))
	}
	require.ErrorContains(t, run(new(bytes.Buffer), 65, 1, ""), "65 ranks")
	require.ErrorIs(t, run(new(bytes.Buffer), 2, -3, ""), comm.Invalid)
	require.ErrorIs(t, run(new(bytes.Buffer), 0, 1, ""), comm.Invalid)
}

// Devices that cannot be had are refused before any layout runs.
func TestWrongDevices(t *testing.T) {
	for _, devices := range []string{"cuda:x", "gpu", "cuda:0x8"} {
		var out bytes.Buffer
		require.ErrorIs(t, run(&out, 2, 5, devices), comm.Invalid, devices)
		require.Empty(t, out.String(), devices)
	}
}

// Every layout of eight ranks with its collectives on one GPU, and the bits of the CPU.
func TestRunOnDevices(t *testing.T) {
	gputest.Device(t)
	var out bytes.Buffer
	require.NoError(t, run(&out, 8, 300, "cuda:0x8"))
	t.Log(out.String())
	require.Equal(t, 5, strings.Count(out.String(), "with collectives on cuda:0x8: all 38400 elements have the bits of the CPU"))
	require.ErrorContains(t, run(&out, 3, 1, "cuda:0x8"), "they are for 8 ranks, not 3")
}

func TestDiffers(t *testing.T) {
	require.Equal(t, -1, differs([]float32{1, 2}, []float32{1, 2}))
	require.Equal(t, 1, differs([]float32{1, 0}, []float32{1, float32(math.Copysign(0, -1))}))
}
