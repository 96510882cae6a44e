package suite

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestBind(t *testing.T) {
	var before, during, after unix.CPUSet
	require.NoError(t, unix.SchedGetaffinity(0, &before))
	undo := bind(0)
	require.NoError(t, unix.SchedGetaffinity(0, &during))
	require.Equal(t, 1, during.Count())
	undo()
	require.NoError(t, unix.SchedGetaffinity(0, &after))
	bind(1 << 20)() // more ranks than CPUs: nothing happens
	require.NoError(t, unix.SchedGetaffinity(0, &after))
	require.Equal(t, before.Count(), after.Count())
}
