package workload_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/weftgo/weft/examples/internal/bundled"
	"github.com/weftgo/weft/examples/internal/tokenizer"
	"github.com/weftgo/weft/examples/internal/workload"
)

// The profiles promise prompt lengths in tokens of the bundled model.
func TestPromptLengths(t *testing.T) {
	tok, err := tokenizer.LoadFS(bundled.FS(), "tokenizer.json")
	require.NoError(t, err)
	for _, c := range []struct {
		profile  workload.Profile
		min, max int
	}{
		{workload.Short, 330, 1050},
		{workload.Article, 2000, 4700},
	} {
		c.profile.NumRequests = 32
		var total int
		for seed := range uint64(3) {
			requests, err := workload.Requests(c.profile, seed)
			require.NoError(t, err)
			for i, r := range requests {
				n := len(tok.Encode(r.Prompt))
				total += n
				require.GreaterOrEqual(t, n, c.min, "%s, seed %d, request %d", c.profile.Name, seed, i)
				require.LessOrEqual(t, n, c.max, "%s, seed %d, request %d", c.profile.Name, seed, i)
			}
		}
		t.Logf("%s: %d tokens a prompt on average", c.profile.Name, total/96)
	}
}
