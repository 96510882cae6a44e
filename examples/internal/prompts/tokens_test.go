package prompts_test

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/weftgo/weft/examples/internal/bundled"
	"github.com/weftgo/weft/examples/internal/prompts"
	"github.com/weftgo/weft/examples/internal/tokenizer"
)

// The golden's token counts: generator and tokenizer together.
func TestPromptTokensAreTheGolden(t *testing.T) {
	tok, err := tokenizer.LoadFS(bundled.FS(), "tokenizer.json")
	require.NoError(t, err)
	text, err := os.ReadFile("testdata/prompts.json")
	require.NoError(t, err)
	var golden struct {
		Groups []struct {
			Seed       uint64
			Words      int
			Candidates []struct {
				PromptTokens int `json:"prompt_tokens"`
			}
		}
	}
	require.NoError(t, json.Unmarshal(text, &golden))
	require.NotEmpty(t, golden.Groups)
	for _, g := range golden.Groups {
		family := prompts.Group(g.Seed, g.Words)
		for i, c := range g.Candidates {
			require.Len(t, tok.Encode(family.Prompt(i)), c.PromptTokens, "seed %d, candidate %d", g.Seed, i)
		}
	}
}

// An answer is three tokens before the end of the turn: what the judge counts on.
func TestAnswersAreThreeTokens(t *testing.T) {
	tok, err := tokenizer.LoadFS(bundled.FS(), "tokenizer.json")
	require.NoError(t, err)
	first := []int32{860, 721, 485, 515, 511, 334} // from the model's README
	for count, id := range first {
		ids := tok.Encode(prompts.Answer(count))
		require.Len(t, ids, 3)
		require.EqualValues(t, id, ids[0])
	}
}
