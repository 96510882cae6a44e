package tokenizer

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// variant is the judge's tokenizer.json with some parts replaced, and what the tokenizers library (0.23.3) makes of
// texts put together at random from difficult parts.
type variant struct {
	Name         string
	Patch        map[string]json.RawMessage
	IgnoreMerges bool `json:"ignore_merges"`
	Cases        []struct {
		Text    string
		IDs     []int32
		Decoded string // with special tokens
		Plain   string // without
	}
}

// patched returns the judge's file with fields of the file and of its model replaced.
func patched(t testing.TB, patch, model map[string]json.RawMessage) []byte {
	t.Helper()
	data, err := os.ReadFile(judgePath)
	require.NoError(t, err)
	var file, inner map[string]json.RawMessage
	require.NoError(t, json.Unmarshal(data, &file))
	require.NoError(t, json.Unmarshal(file["model"], &inner))
	for k, v := range model {
		inner[k] = v
	}
	file["model"], err = json.Marshal(inner)
	require.NoError(t, err)
	for k, v := range patch {
		file[k] = v
	}
	data, err = json.Marshal(file)
	require.NoError(t, err)
	return data
}

func TestVariants(t *testing.T) {
	path := "testdata/variants.json"
	if p := os.Getenv("WEFT_TOKENIZER_VARIANTS"); p != "" {
		path = p // a larger file of the same form
	}
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	var variants []variant
	require.NoError(t, json.Unmarshal(data, &variants))
	require.NotEmpty(t, variants)
	for _, v := range variants {
		t.Run(v.Name, func(t *testing.T) {
			model := map[string]json.RawMessage{}
			if v.IgnoreMerges {
				model["ignore_merges"] = json.RawMessage("true")
			}
			tok, err := Parse(patched(t, v.Patch, model), v.Name)
			require.NoError(t, err)
			require.NotEmpty(t, v.Cases)
			for _, c := range v.Cases {
				require.Equal(t, c.IDs, tok.Encode(c.Text), "%q", c.Text)
				require.Equal(t, c.Decoded, tok.Decode(c.IDs, false), "%q", c.Text)
				require.Equal(t, c.Plain, tok.Decode(c.IDs, true), "%q", c.Text)
			}
		})
	}
}
