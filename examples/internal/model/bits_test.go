package model

import (
	"fmt"
	"math"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// logitsOf runs a plan and returns the logits of each prediction, by prompt and position.
func logitsOf(t testing.TB, l layout, cfg Config, prompts []*golden, o planOptions, prepare func(*Model)) map[string][]float32 {
	f, err := oddFolder()
	require.NoError(t, err)
	vocab := f.Config.VocabSize
	out := map[string][]float32{}
	var mu sync.Mutex
	p := makePlan(prompts, o)
	runPlan(t, f, l, cfg, p, prepare, func(pl *planned, logits []float32) {
		mu.Lock()
		defer mu.Unlock()
		for i, r := range pl.rows {
			out[fmt.Sprint(len(r.prompt.IDs), "/", r.at)] = append([]float32(nil), logits[i*vocab:(i+1)*vocab]...)
		}
	})
	return out
}

func requireSameBits(t testing.TB, want, got map[string][]float32, what string) {
	t.Helper()
	require.Equal(t, len(want), len(got), what)
	for k, w := range want {
		g := got[k]
		require.Len(t, g, len(w), "%s: %s", what, k)
		for i := range w {
			if math.Float32bits(w[i]) != math.Float32bits(g[i]) {
				require.FailNowf(t, "bits differ", "%s: %s: logit %d: %v and %v", what, k, i, w[i], g[i])
			}
		}
	}
}

// A token's logits depend on the tokens before it alone: not on how prompts are cut, what shares the batch, the block size,
// or what is left in scratch memory and in blocks that others used.
func TestLogitsDependOnTheSequenceAlone(t *testing.T) {
	prompts := oddGoldens()
	long := &golden{Name: "long", Completion: prompts[5].Completion} // over two tiles of keys
	for _, g := range prompts {
		long.IDs = append(long.IDs, g.IDs...)
	}
	long.Logits = prompts[5].Logits // so that all its rows are asked for
	long.IDs = append(long.IDs, prompts[5].IDs...)
	prompts = append([]*golden{long}, prompts...)

	base := planOptions{replicas: 1, blockSize: 16, maxTokens: 256, echo: true, decode: 4}
	want := logitsOf(t, one, Config{BlockSize: 16, MaxBatchedTokens: 256}, prompts, base, nil)
	require.Greater(t, len(want), 300)
	for _, c := range []struct {
		name                        string
		blockSize, maxTokens, chunk int
		poison                      bool
	}{
		{"alone in pieces of 7", 16, 7, 7, false},
		{"pieces of 33", 32, 100, 33, false},
		{"blocks of 32", 32, 256, 0, false},
		{"blocks of 48", 48, 256, 0, false},
		{"blocks of 64", 64, 256, 0, false},
		{"blocks of 128", 128, 256, 64, false},
		{"poisoned", 16, 90, 0, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := base
			o.blockSize, o.maxTokens, o.chunk = c.blockSize, c.maxTokens, c.chunk
			prepare := func(m *Model) {}
			if c.poison {
				prepare = (*Model).poison
			}
			got := logitsOf(t, one, Config{BlockSize: c.blockSize, MaxBatchedTokens: c.maxTokens}, prompts, o, prepare)
			requireSameBits(t, want, got, c.name)
		})
	}
}

// poison fills everything that a step must write before it reads with NaN: scratch, keys, and the used columns of values.
func (m *Model) poison() {
	nan := float32(math.NaN())
	fill := func(x []float32) {
		for i := range x {
			x[i] = nan
		}
	}
	b := &m.mem
	b.rows, b.part, b.gather, b.logits = make([]float32, 4096), make([]float32, 4096), make([]float32, 4096), make([]float32, 4096)
	for _, x := range [][]float32{b.x, b.y, b.out, b.own, b.gateUp, b.act, b.rows, b.part, b.gather, b.logits, m.q, m.attn} {
		fill(x)
	}
	for _, y := range m.layers {
		fill(y.cache.keys)
		fill(y.cache.values)
	}
	for range cap(m.workers) {
		t := m.newWorker()
		for _, x := range [][]float32{t.h, t.qkv, t.scores, t.out, t.most, t.sum, t.shrink} {
			fill(x)
		}
		m.putWorker(t)
	}
}

// Poisoned memory on every layout, against the goldens.
func TestScratchIsWrittenBeforeItIsRead(t *testing.T) {
	f, err := oddFolder()
	require.NoError(t, err)
	for _, l := range append(layouts[2:], oddLayouts...) {
		t.Run(l.name, func(t *testing.T) {
			p := makePlan(oddGoldens(), planOptions{replicas: l.parallel.DP, blockSize: 16, maxTokens: 64, echo: true, decode: 2})
			runPlan(t, f, l, Config{BlockSize: 16, MaxBatchedTokens: 64}, p, (*Model).poison, checkRows(t, f.Config.VocabSize))
		})
	}
}

// Runs repeat to the bit, also where ranks race each other.
func TestRunsRepeat(t *testing.T) {
	for _, l := range []layout{layouts[2], layouts[6]} {
		o := planOptions{replicas: l.parallel.DP, blockSize: 16, maxTokens: 64, echo: true, decode: 2}
		cfg := Config{BlockSize: 16, MaxBatchedTokens: 64}
		want := logitsOf(t, l, cfg, oddGoldens(), o, nil)
		for range 5 {
			requireSameBits(t, want, logitsOf(t, l, cfg, oddGoldens(), o, nil), l.name)
		}
	}
}

// With dp alone, attention and dense layers do the same sums everywhere; RankInvariant makes the MoE layers do so too.
func TestRankInvariantLogitsAreTheSameForEveryNumberOfRanks(t *testing.T) {
	prompts := oddGoldens()
	var want map[string][]float32
	for _, n := range []int{1, 2, 3, 8} {
		l := layout{fmt.Sprint("dp", n), one.parallel, "alltoall"}
		l.parallel.DP, l.parallel.EP = n, n > 1
		o := planOptions{replicas: n, blockSize: 16, maxTokens: 64, echo: true, decode: 2}
		got := logitsOf(t, l, Config{BlockSize: 16, MaxBatchedTokens: 64, RankInvariant: true}, prompts, o, nil)
		if want == nil {
			want = got
		}
		requireSameBits(t, want, got, l.name)
	}
}
