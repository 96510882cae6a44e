package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/internal/gputest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRun(t *testing.T) {
	d := gputest.Device(t)
	before := d.Alive()
	for _, devices := range []string{"cuda:0", "cuda:0x4", "cuda:0x8"} {
		var out bytes.Buffer
		require.NoError(t, run(&out, devices))
		require.Contains(t, out.String(), "all numbers are right")
	}
	require.Equal(t, before, d.Alive())
}

func TestRefused(t *testing.T) {
	require.ErrorIs(t, run(new(bytes.Buffer), "cuda:x"), comm.Invalid)
	for _, devices := range []string{"cpu", ""} {
		err := run(new(bytes.Buffer), devices)
		require.ErrorIs(t, err, comm.Invalid)
		require.ErrorContains(t, err, "this example needs GPUs")
	}
}
