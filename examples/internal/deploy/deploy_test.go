package deploy

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/examples/internal/checkpoint"
	"github.com/weftgo/weft/examples/internal/layout"
)

// A folder whose weights are cut off, or those of another config.json, is refused as such, not as a failure of a rank.
func TestWrongWeights(t *testing.T) {
	const from = "../checkpoint/testdata/odd-a"
	config, err := os.ReadFile(filepath.Join(from, "config.json"))
	require.NoError(t, err)
	weights, err := os.ReadFile(filepath.Join(from, "model.safetensors"))
	require.NoError(t, err)
	l, err := layout.Parse("tp2")
	require.NoError(t, err)
	other := strings.Replace(string(config), `"vocab_size": `, `"vocab_size": 1`, 1)
	require.NotEqual(t, string(config), other)
	for want, files := range map[string][2]string{
		"the file is cut off; copy it again": {string(config), string(weights[:len(weights)-100])},
		"by config.json":                     {other, string(weights)},
	} {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), []byte(files[0]), 0o600))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "model.safetensors"), []byte(files[1]), 0o600))
		folder, err := checkpoint.Open(dir)
		require.NoError(t, err)
		_, err = Open(t.Context(), folder, Config{Layout: l})
		require.ErrorIs(t, err, comm.Invalid)
		require.ErrorContains(t, err, want)
		require.NoError(t, folder.Close())
	}
}
