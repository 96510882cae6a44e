package kernels

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/cuda"
	"github.com/weftgo/weft/internal/gputest"
)

// What Load has when a later step fails is closed, and what it has not yet is no obstacle.
func TestCloseAPart(t *testing.T) {
	require.NoError(t, (&Set{module: &cuda.Module{}}).Close())
	dev := gputest.Device(t)
	t.Setenv("WEFT_KERNEL_GANG", "1")
	g, err := newGang(dev)
	require.NoError(t, err)
	require.Len(t, g.lists.Bytes(), gangBytes)
	require.NoError(t, (&Set{module: &cuda.Module{}, gang: g}).Close())
	require.Nil(t, g.lists.Bytes())
}
