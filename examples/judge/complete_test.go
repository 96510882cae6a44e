package main

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	judgeGolden = "../internal/model/testdata/judge.json"
	oddGolden   = "../internal/model/testdata/odd-a.json"
	oddModel    = "../internal/checkpoint/testdata/odd-a"
)

// line is one of the output, as a user reads it.
type line struct {
	IDs      []int32        `json:"ids"`
	Logprobs []float64      `json:"logprobs"`
	Top      [][][2]float64 `json:"top"`
	Echo     []*float64     `json:"echo"`
}

type goldenPrompt struct {
	Name       string
	IDs        []int32
	Completion []int32
	Steps      []struct {
		ID      int32
		Logprob float64
		Top     [][2]float64
	}
	Echo []*float64
}

func near(t *testing.T, want, got float64, name string) {
	t.Helper()
	// The bound of the reference files: 1e-3, and 1e-5 relative for values that are large.
	require.LessOrEqual(t, math.Abs(want-got), 1e-3+1e-5*math.Abs(want), "%s: want %v, got %v", name, want, got)
}

func nearEcho(t *testing.T, want, got []*float64, name string) {
	t.Helper()
	require.Len(t, got, len(want), name)
	require.Nil(t, got[0], name)
	for i := 1; i < len(want); i++ {
		near(t, *want[i], *got[i], name)
	}
}

func readGolden(t *testing.T, file string, v any) {
	t.Helper()
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(raw, v))
}

func complete(t *testing.T, in []map[string]any, args ...string) []line {
	t.Helper()
	var b strings.Builder
	for _, p := range in {
		raw, err := json.Marshal(p)
		require.NoError(t, err)
		b.Write(raw)
		b.WriteByte('\n')
	}
	out, _, err := judge(t, b.String(), append([]string{"complete"}, args...)...)
	require.NoError(t, err, "%v", args)
	var lines []line
	for text := range strings.Lines(out) {
		var l line
		require.NoError(t, json.Unmarshal([]byte(text), &l))
		lines = append(lines, l)
	}
	require.Len(t, lines, len(in))
	return lines
}

func TestCompleteJudge(t *testing.T) {
	var golden struct{ Prompts []goldenPrompt }
	readGolden(t, judgeGolden, &golden)
	layouts := []string{"tp1", "tp8", "tp8+ep8", "dp2tp4+ep8", "dp8", "dp8+ep8:agrs", "dp8+ep8:alltoall", "dp3+ep3:alltoall", "dp2tp3"}
	if testing.Short() {
		layouts = []string{"tp1", "dp2tp2+ep4:alltoall"}
	}
	var prompts []goldenPrompt
	var in []map[string]any
	for _, p := range golden.Prompts {
		if testing.Short() && len(p.IDs) > 700 {
			continue
		}
		prompts = append(prompts, p)
		in = append(in, map[string]any{"ids": p.IDs, "max_tokens": 8, "logprobs": 20, "echo": p.Echo != nil})
	}
	for _, layout := range layouts {
		t.Run(layout, func(t *testing.T) {
			for i, got := range complete(t, in, "--layout", layout) {
				want := prompts[i]
				require.Equal(t, want.Completion, got.IDs, want.Name)
				for j, s := range want.Steps {
					near(t, s.Logprob, got.Logprobs[j], want.Name)
					require.Len(t, got.Top[j], 20)
					for k, top := range s.Top {
						near(t, top[1], got.Top[j][k][1], want.Name)
					}
					require.Equal(t, s.Top[0][0], got.Top[j][0][0], want.Name)
				}
				if want.Echo == nil {
					require.Nil(t, got.Echo)
				} else {
					nearEcho(t, want.Echo, got.Echo, want.Name)
				}
			}
		})
	}
}

func TestCompleteOdd(t *testing.T) {
	var golden struct {
		Prompts []struct {
			IDs            []int32
			Greedy         []int32
			GreedyLogprobs []float64 `json:"greedy_logprobs"`
			Echo           []*float64
		}
	}
	readGolden(t, oddGolden, &golden)
	var in []map[string]any
	for _, p := range golden.Prompts {
		in = append(in, map[string]any{"ids": p.IDs, "max_tokens": 12, "echo": true})
	}
	for _, layout := range []string{"tp1", "tp2", "tp6", "dp2tp3+ep6", "dp5+ep5:alltoall", "dp7+ep7"} {
		t.Run(layout, func(t *testing.T) {
			for i, got := range complete(t, in, "--model", oddModel, "--layout", layout) {
				want := golden.Prompts[i]
				require.Equal(t, want.Greedy, got.IDs)
				for j := range want.GreedyLogprobs {
					near(t, want.GreedyLogprobs[j], got.Logprobs[j], "greedy")
				}
				nearEcho(t, want.Echo, got.Echo, "echo")
			}
		})
	}
}

func TestCompleteForms(t *testing.T) {
	file := filepath.Join(t.TempDir(), "out.jsonl")
	in := filepath.Join(t.TempDir(), "in.jsonl")
	require.NoError(t, os.WriteFile(in, []byte("{\"ids\":[1,2,3],\"max_tokens\":0,\"echo\":true}\n\n{\"ids\":[5],\"max_tokens\":2}"), 0o644))
	_, _, err := judge(t, "", "complete", "--input", in, "--output", file)
	require.NoError(t, err)
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Regexp(t, `^\{"ids":\[\],"logprobs":\[\],"top":\[\],"echo":\[null,-[0-9.]+,-[0-9.]+\]\}
\{"ids":\[\d+,\d+\],"logprobs":\[-[0-9.e-]+,-[0-9.e-]+\],"top":\[\],"echo":null\}
$`, string(raw))
}

func TestCompleteBadInput(t *testing.T) {
	for in, text := range map[string]string{
		"{\"ids\":[1]}\n{\"ids\":":                      "line 2",
		`{"ids":[1],"max_new_tokens":3}`:                "max_new_tokens",
		`{"ids":[]}`:                                    "prompt 1",
		`{"ids":[2048]}`:                                "2048",
		`{"ids":[-1]}`:                                  "-1",
		`{"ids":[1],"max_tokens":-1}`:                   "-1",
		`{"ids":[1],"max_tokens":0}`:                    "echo",
		`{"ids":[1],"logprobs":21}`:                     "21",
		`{"ids":[1],"logprobs":-1}`:                     "line 1: logprobs -1 is not in [0, 20]",
		`{"ids":[1]} ]`:                                 "more than one",
		`{"ids":[1]} {"ids":[2]}`:                       "more than one",
		`{"ids":[` + strings.Repeat("1,", 8192) + `1]}`: "8193",
	} {
		_, _, err := judge(t, in, "complete", "--layout", "tp2")
		require.ErrorContains(t, err, text, "%.60s", in)
	}
	for _, tokens := range []string{"-1", "9223372036854775807"} {
		_, _, err := judge(t, `{"ids":[1]}`, "complete", "--max-num-batched-tokens="+tokens)
		require.ErrorContains(t, err, "max batched tokens "+tokens)
	}
	for _, tokens := range []string{"8192", "100000", "9223372036854775807"} { // not fewer tokens in silence
		_, _, err := judge(t, "\n"+`{"ids":[1],"max_tokens":`+tokens+`}`, "complete")
		require.EqualError(t, err, "line 2: a prompt of 1 tokens and max_tokens "+tokens+" are more than the model's 8192 positions; max_tokens can be 8191 at most")
	}
	_, _, err := judge(t, `{"ids":[1]}`, "complete", "--model", oddModel, "--layout", "tp7")
	require.ErrorContains(t, err, "7", "odd-a has 6 heads")
}
