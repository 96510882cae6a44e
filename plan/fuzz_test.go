package plan

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzParseLayout: what parses prints and parses again to the same layout.
func FuzzParseLayout(f *testing.F) {
	for _, s := range []string{"tp8", "tp8+ep8", "dp2tp4+ep8:alltoall", "dp8:replicas", "tp4pp2", "dp0", "tp99999999999999999999", ":agrs"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		l, err := ParseLayout(s)
		if err != nil {
			return
		}
		again, err := ParseLayout(l.String())
		require.NoError(t, err)
		require.Equal(t, l, again)
	})
}

// FuzzCluster: no name panics, and what is accepted has GPUs.
func FuzzCluster(f *testing.F) {
	for _, s := range []string{"h200", "8xh200", "4x8xmi300x", "0xh200", "-1xh200", "4294967296x4294967296xh200", "8x", "x", ""} {
		f.Add(s, 8)
	}
	f.Fuzz(func(t *testing.T, s string, gpus int) {
		c, err := ClusterPreset(s, gpus)
		if err == nil {
			require.Greater(t, c.GPUs(), 0)
		}
	})
}
