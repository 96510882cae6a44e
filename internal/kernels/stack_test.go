package kernels

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/cuda"
	"github.com/weftgo/weft/internal/gputest"
)

// TestStack holds that no kernel needs more stack than every context has from the start: the driver would take more at a
// kernel's first launch, and wait for all running kernels, among them those that wait for the rank that launches it.
func TestStack(t *testing.T) {
	d := gputest.Device(t)
	s, err := Load(d)
	require.NoError(t, err)
	for _, f := range []*cuda.Function{s.barrier, s.barriers, s.copy, s.reduce, s.reduceAny, s.send, s.recv, s.leave, s.memory, s.small} {
		n, err := f.Attribute(cuda.FuncLocalBytes)
		require.NoError(t, err)
		require.LessOrEqual(t, n, 1024, f.Name())
	}
	require.NoError(t, s.Close())
}
