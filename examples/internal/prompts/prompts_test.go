package prompts

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// golden is testdata/prompts.json, written by the specification's own code.
type golden struct {
	Rng []struct {
		Seed  string
		Next  []string
		Below [][2]int
	}
	Groups []struct {
		Seed          uint64
		Words         int
		Required      []string
		PostingBytes  int    `json:"posting_bytes"`
		PostingSHA256 string `json:"posting_sha256"`
		Candidates    []struct {
			Count, Bytes int
			SHA256       string
			PromptTokens int `json:"prompt_tokens"`
		}
	}
}

func readGolden(t *testing.T) golden {
	t.Helper()
	text, err := os.ReadFile("testdata/prompts.json")
	require.NoError(t, err)
	var g golden
	require.NoError(t, json.Unmarshal(text, &g))
	require.NotEmpty(t, g.Rng)
	require.NotEmpty(t, g.Groups)
	return g
}

func sha(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

func TestRngIsTheGolden(t *testing.T) {
	for _, g := range readGolden(t).Rng {
		seed, err := strconv.ParseUint(g.Seed, 10, 64)
		require.NoError(t, err)
		rng := NewRng(seed)
		for _, want := range g.Next {
			require.Equal(t, want, strconv.FormatUint(rng.Next(), 10), "seed %s", g.Seed)
		}
		rng = NewRng(seed)
		for _, below := range g.Below {
			require.Equal(t, below[1], rng.Below(below[0]), "seed %s, below %d", g.Seed, below[0])
		}
	}
}

func TestGroupsAreTheGolden(t *testing.T) {
	for _, g := range readGolden(t).Groups {
		f := Group(g.Seed, g.Words)
		require.Equal(t, g.Required, f.Required, "seed %d", g.Seed)
		require.Len(t, f.Posting, g.PostingBytes, "seed %d", g.Seed)
		require.Equal(t, g.PostingSHA256, sha(f.Posting), "seed %d", g.Seed)
		require.Len(t, g.Candidates, len(f.Candidates))
		for i, c := range g.Candidates {
			require.Equal(t, c.Count, f.Candidates[i].Count, "seed %d, candidate %d", g.Seed, i)
			require.Len(t, f.Candidates[i].Text, c.Bytes, "seed %d, candidate %d", g.Seed, i)
			require.Equal(t, c.SHA256, sha(f.Candidates[i].Text), "seed %d, candidate %d", g.Seed, i)
		}
	}
}

// What a reader of a prompt can check: the posting lists the skills, and the
// candidate names exactly Count of them.
func TestAnswerFollowsFromTheText(t *testing.T) {
	skills := words().list("skill")
	rapid.Check(t, func(t *rapid.T) {
		f := Group(rapid.Uint64Max(1<<32-1).Draw(t, "seed"), rapid.IntRange(-5, 900).Draw(t, "words"))
		require.Len(t, f.Required, NumRequired)
		for _, skill := range f.Required {
			require.Contains(t, f.Posting, "\n- "+skill+"\n")
		}
		for i, c := range f.Candidates {
			var named []string
			for _, skill := range skills {
				if regexp.MustCompile(` ` + skill + `\b`).MatchString(c.Text) {
					named = append(named, skill)
				}
			}
			named = slices.DeleteFunc(named, func(s string) bool { return !slices.Contains(f.Required, s) })
			require.Len(t, named, c.Count, "candidate %d", i)
			require.True(t, strings.HasSuffix(f.Prompt(i), "\nVerdict:"))
			require.True(t, strings.HasPrefix(f.Prompt(i), f.Posting))
			require.NotContains(t, f.Prompt(i), "{")
		}
	})
}

func TestAnswer(t *testing.T) {
	want := []string{" zero of five", " one of five", " two of five", " three of five", " four of five", " five of five"}
	for count, text := range want {
		require.Equal(t, text, Answer(count))
	}
	require.Panics(t, func() { Answer(NumRequired + 1) })
}

func TestChat(t *testing.T) {
	require.Equal(t, "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n", Chat("hi"))
}

func TestParseLexiconRefuses(t *testing.T) {
	for _, src := range []string{``, `[]`, `{"skill": "Go"}`, `{"text": ["x"]}`, `{"skill": [1]}`} {
		_, err := parseLexicon(src)
		require.Error(t, err, src)
	}
	lex, err := parseLexicon(`{"skill": [], "text": {}}`)
	require.NoError(t, err)
	require.PanicsWithValue(t, "prompts: the lexicon has no list skill", func() { lex.list("skill") })
}
