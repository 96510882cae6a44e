package model

import (
	"encoding/json"
	"math"
	"os"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// golden is one prompt of testdata/judge.json or odd-a.json; README.md of the goldens explains the fields.
type golden struct {
	Name       string  `json:"name"`
	IDs        []int32 `json:"ids"`
	Completion []int32 `json:"completion"`
	Steps      []struct {
		ID      int32        `json:"id"`
		Logprob float64      `json:"logprob"`
		Top     [][2]float64 `json:"top"`
	} `json:"steps"`
	Echo       []*float64  `json:"echo"`
	RouterTopK [][][]int   `json:"router_topk"`
	RouterGap  [][]float64 `json:"router_gap"`
	Hidden     [][]float64 `json:"hidden"`
	FinalNorm  []float64   `json:"final_norm"`

	Logits         []float64 `json:"logits"` // odd-a: of the last token
	Greedy         []int32   `json:"greedy"`
	GreedyLogprobs []float64 `json:"greedy_logprobs"`
}

var judgeGoldens = sync.OnceValue(func() []*golden { return readGoldens("testdata/judge.json") })
var oddGoldens = sync.OnceValue(func() []*golden { return readGoldens("testdata/odd-a.json") })

func readGoldens(path string) []*golden {
	text, err := os.ReadFile(path)
	if err != nil {
		panic(err)
	}
	var f struct {
		Prompts []*golden `json:"prompts"`
	}
	if err := json.Unmarshal(text, &f); err != nil {
		panic(err)
	}
	for _, g := range f.Prompts {
		if g.Completion == nil {
			g.Completion = g.Greedy
		}
	}
	return f.Prompts
}

// closeTo says whether got is within the goldens' tolerance of want: 1e-3, and 1e-5 relative besides.
func closeTo(got float32, want float64) bool {
	return math.Abs(float64(got)-want) <= 1e-3+1e-5*math.Abs(want)
}

func requireClose(t testing.TB, want []float64, got []float32, what string) {
	t.Helper()
	require.Len(t, got, len(want), what)
	for i := range want {
		if !closeTo(got[i], want[i]) {
			require.FailNowf(t, "off", "%s[%d] = %v, want %v", what, i, got[i], want[i])
		}
	}
}

// logSoftmax returns log-probabilities of one row of logits, in float64 sums.
func logSoftmax(logits []float32) []float32 {
	most := logits[0]
	for _, x := range logits {
		most = max(most, x)
	}
	sum := 0.0
	for _, x := range logits {
		sum += math.Exp(float64(x - most))
	}
	out := make([]float32, len(logits))
	for i, x := range logits {
		out[i] = float32(float64(x-most) - math.Log(sum))
	}
	return out
}

func argmax(x []float32) int32 {
	best := 0
	for i := range x {
		if x[i] > x[best] {
			best = i
		}
	}
	return int32(best)
}

// checkRow holds logits that predict token number at (of prompt and completion) against the golden.
func (g *golden) checkRow(t testing.TB, at int, logits []float32) {
	t.Helper()
	lp := logSoftmax(logits)
	if at < len(g.IDs) {
		if g.Echo != nil {
			require.Truef(t, closeTo(lp[g.IDs[at]], *g.Echo[at]), "%s: echo %d: %v, want %v", g.Name, at, lp[g.IDs[at]], *g.Echo[at])
		}
		return
	}
	step := at - len(g.IDs)
	require.Equalf(t, g.Completion[step], argmax(logits), "%s: greedy step %d", g.Name, step)
	if g.Logits != nil {
		if step == 0 {
			requireClose(t, g.Logits, logits, g.Name+" logits")
		}
		id := g.Completion[step]
		require.Truef(t, closeTo(lp[id], g.GreedyLogprobs[step]), "%s: step %d: %v, want %v", g.Name, step, lp[id], g.GreedyLogprobs[step])
		return
	}
	for _, top := range g.Steps[step].Top {
		require.Truef(t, closeTo(lp[int(top[0])], top[1]), "%s: step %d: id %v: %v, want %v", g.Name, step, top[0], lp[int(top[0])], top[1])
	}
}
