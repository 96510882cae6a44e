package p2p

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/comm"
)

func TestConfigWithout(t *testing.T) {
	gpus := func(list ...int) (devices []comm.Device) {
		for _, i := range list {
			devices = append(devices, comm.Device{Kind: comm.CUDA, Index: i})
		}
		return devices
	}
	whole := Config{Devices: gpus(0, 1, 2, 3), Workspace: 77}
	got, err := whole.Without(2, 0)
	require.NoError(t, err)
	require.Equal(t, Config{Devices: gpus(1, 3), Size: 2, Workspace: 77}, got)

	// Ranks 4 to 7 of 12; rank 1 was in front of them, 5 here, 11 behind.
	part := Config{Devices: gpus(0, 1, 2, 3), FirstRank: 4, Size: 12, Name: "again"}
	got, err = part.Without(11, 1, 5)
	require.NoError(t, err)
	require.Equal(t, Config{Devices: gpus(0, 2, 3), FirstRank: 3, Size: 9, Name: "again"}, got)

	for text, missing := range map[string][]int{
		"none of ranks 4 to 7 is left here":        {4, 5, 6, 7},
		"rank 12 is named twice or not in [0, 12)": {12},
		"rank 3 is named twice":                    {3, 3},
	} {
		_, err := part.Without(missing...)
		require.ErrorContains(t, err, text)
	}
}
