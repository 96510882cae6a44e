package checkpoint

import (
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/examples/internal/bundled"
)

func TestTemplateTokens(t *testing.T) {
	f, err := OpenFS(bundled.FS(), bundled.Name)
	require.NoError(t, err)
	defer f.Close()
	bos, eos, err := f.TemplateTokens()
	require.NoError(t, err)
	require.Equal(t, "", bos)
	require.Equal(t, "<|im_end|>", eos)

	for _, c := range []struct{ file, bos, eos, text string }{
		{`{"bos_token":{"content":"<s>","lstrip":false},"eos_token":"</s>"}`, "<s>", "</s>", ""},
		{`{}`, "", "", ""},
		{`{"bos_token":7}`, "", "", "bos_token"},
	} {
		fsys := fstest.MapFS{tokenizerConfigFile: {Data: []byte(c.file)}}
		f := &Folder{source: source{fsys: fsys, name: "x"}}
		bos, eos, err := f.TemplateTokens()
		if c.text != "" {
			require.ErrorContains(t, err, c.text)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, []string{c.bos, c.eos}, []string{bos, eos})
	}
}
