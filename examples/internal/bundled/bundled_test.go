package bundled_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io/fs"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/weftgo/weft/examples/internal/bundled"
)

// A damaged or replaced model file must not pass for the one whose accuracy
// the README states.
func TestWeightsAreThoseOfTheReadme(t *testing.T) {
	readme, err := fs.ReadFile(bundled.FS(), "README.md")
	require.NoError(t, err)
	row := regexp.MustCompile("\\| sha256 \\| `([0-9a-f]{64})` \\|").FindSubmatch(readme)
	require.NotNil(t, row, "the README states no sha256")

	weights, err := fs.ReadFile(bundled.FS(), "model.safetensors")
	require.NoError(t, err)
	sum := sha256.Sum256(weights)
	require.Equal(t, string(row[1]), hex.EncodeToString(sum[:]))
}

func TestFolderIsComplete(t *testing.T) {
	weights, err := fs.Stat(bundled.FS(), "model.safetensors")
	require.NoError(t, err)
	require.EqualValues(t, 14650720, weights.Size())
	for _, name := range []string{"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"} {
		text, err := fs.ReadFile(bundled.FS(), name)
		require.NoError(t, err)
		require.True(t, json.Valid(text), name)
	}
	require.True(t, json.Valid([]byte(bundled.Lexicon())))
}
