package engine

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weftgo/weft/examples/internal/batch"
	"github.com/weftgo/weft/examples/internal/sampling"
)

// bits makes outputs comparable: log-probabilities as bits, without what may differ from run to run.
func bits(o Output) (x struct {
	ids        []int32
	lps, echo  []uint32
	top        [][]TopLogprob
	echoTop    [][]TopLogprob
	reason     FinishReason
	tokens, in int
}) {
	for _, v := range o.Logprobs {
		x.lps = append(x.lps, math.Float32bits(v))
	}
	for _, v := range o.Echo {
		x.echo = append(x.echo, math.Float32bits(v))
	}
	x.ids, x.top, x.echoTop, x.reason = o.IDs, o.Top, o.EchoTop, o.Reason
	x.tokens, x.in = o.Usage.CompletionTokens, o.Usage.PromptTokens
	return x
}

// all runs the requests at once on a fresh engine, some behind the others.
func all(t *rapid.T, cfg Config, reqs []Request) []Output {
	r := start(t, cfg, 10*time.Second)
	outs := make([]Output, len(reqs))
	for half := range slices.Chunk([]int{0, len(reqs) / 2, len(reqs) / 2, len(reqs)}, 2) {
		var wg sync.WaitGroup
		for i := half[0]; i < half[1]; i++ {
			h, err := r.Submit(t.Context(), reqs[i])
			require.NoError(t, err)
			wg.Go(func() { outs[i], _ = h.Wait(t.Context()) })
		}
		wg.Wait()
	}
	r.close(t)
	return outs
}

// With and without the cache, whatever the policy, the chunks and the company, outputs are the same to the bit, and greedy ones
// are those of the model alone.
func TestPrefixCacheChangesNothing(t *testing.T) {
	hits := 0
	rapid.Check(t, func(t *rapid.T) {
		cfg := config(layouts[rapid.IntRange(0, 2).Draw(t, "layout")])
		cfg.MaxBatchedTokens = rapid.SampledFrom([]int{5, 16, 100}).Draw(t, "max batched tokens")
		cfg.NumBlocks = rapid.IntRange(16, 40).Draw(t, "blocks")
		cfg.MaxLogits = rapid.SampledFrom([]int{0, 7}).Draw(t, "max logits")
		beginning := prompt(rapid.IntRange(0, 9).Draw(t, "beginning"), 40)
		reqs := make([]Request, rapid.IntRange(1, 12).Draw(t, "requests"))
		for i := range reqs {
			ids := prompt(i, rapid.IntRange(1, 44).Draw(t, "prompt"))
			copy(ids, beginning[:rapid.IntRange(0, 40).Draw(t, "shared")])
			reqs[i] = Request{IDs: ids, MaxTokens: rapid.IntRange(1, 20).Draw(t, "max tokens"), Logprobs: i%4 - 1,
				Echo: rapid.IntRange(0, 3).Draw(t, "echo") == 0, CacheSalt: []string{"", "", "x"}[i%3]}
			if i%2 == 1 {
				seed := int64(i)
				reqs[i].Sampling = sampling.Params{Temperature: 1, Seed: &seed}
			}
		}
		plain := all(t, cfg, reqs)
		cfg.PrefixCaching = true
		cfg.WaitForPrefix = rapid.Bool().Draw(t, "wait")
		cfg.Policy = rapid.SampledFrom([]Policy{RoundRobin(), LeastTokens(), PrefixAware(60)}).Draw(t, "policy")
		for i, out := range all(t, cfg, reqs) {
			require.Equal(t, bits(plain[i]), bits(out), "request %d", i)
			if reqs[i].Sampling.Temperature == 0 {
				ids, reason := want(&reqs[i], &cfg)
				require.Equal(t, ids, out.IDs)
				require.Equal(t, reason, out.Reason)
			}
			require.Less(t, out.Usage.CachedTokens, len(reqs[i].IDs))
			if reqs[i].Echo {
				require.Zero(t, out.Usage.CachedTokens)
			}
			require.Zero(t, plain[i].Usage.CachedTokens)
			hits += out.Usage.CachedTokens
		}
	})
	require.Positive(t, hits)
}

func TestCachedTokensAreCounted(t *testing.T) {
	cfg := config(layouts[1])
	cfg.PrefixCaching, cfg.MaxBatchedTokens = true, 64
	r := start(t, cfg, 10*time.Second)
	req := Request{IDs: prompt(1, 18), MaxTokens: 1, IgnoreEOS: true}
	require.Equal(t, Usage{PromptTokens: 18, CompletionTokens: 1}, r.do(t, req).Usage)
	require.Equal(t, Usage{PromptTokens: 18, CompletionTokens: 1, CachedTokens: 16}, r.do(t, req).Usage)
	req.CacheSalt = "mine"
	require.Zero(t, r.do(t, req).Usage.CachedTokens)
	require.Equal(t, 16, r.do(t, req).Usage.CachedTokens)
	req.Echo = true
	out := r.do(t, req)
	require.Zero(t, out.Usage.CachedTokens)
	require.Len(t, out.Echo, 18)
	total := r.Stats().Total()
	require.EqualValues(t, 4*18, total.PrefixQueriedTokens)
	require.EqualValues(t, 32, total.PrefixHitTokens)
	require.EqualValues(t, 5*18-32, total.ContextTokens)
	require.Equal(t, 8, total.KVCached)
	r.close(t)
}

// A request that fails in the step that computes its prompt leaves nothing that others could hit.
func TestFailedPromptsAreNotCached(t *testing.T) {
	cfg := config(layouts[0])
	cfg.PrefixCaching, cfg.MaxBatchedTokens = true, 64
	var nan atomic.Bool
	nan.Store(true)
	r := start(t, cfg, 10*time.Second, func(_ int, m *rankModel) {
		m.after = func(z []float32) []float32 {
			for i := range z {
				if nan.Load() {
					z[i] = float32(math.NaN())
				}
			}
			return z
		}
	})
	req := Request{IDs: prompt(1, 18), MaxTokens: 1, IgnoreEOS: true}
	h, err := r.Submit(t.Context(), req)
	require.NoError(t, err)
	_, err = h.Wait(t.Context())
	require.Error(t, err)
	nan.Store(false)
	require.Zero(t, r.Stats().Replicas[0].KVCached)
	require.Zero(t, r.do(t, req).Usage.CachedTokens)
	r.close(t)
}

func TestPrefixAwarePolicy(t *testing.T) {
	p := PrefixAware(100)
	for _, x := range []struct {
		name  string
		loads []Load
		want  int
	}{
		{"nothing known: the least loaded", []Load{{Tokens: 5}, {Tokens: 3}, {Tokens: 3}}, 1},
		{"most of the prompt", []Load{{Tokens: 0}, {Tokens: 50, Expected: 64}, {Tokens: 90, Expected: 128}}, 2},
		{"as much on both: the less loaded", []Load{{Tokens: 90, Expected: 64}, {Tokens: 80, Expected: 64}, {}}, 1},
		{"a tie does not rotate", []Load{{Tokens: 5}, {Tokens: 9, Expected: 64}, {Tokens: 9, Expected: 64}}, 1},
		{"at the bound", []Load{{Tokens: 7}, {Tokens: 107, Expected: 64}}, 1},
		{"beyond the bound", []Load{{Tokens: 7}, {Tokens: 108, Expected: 64}}, 0},
	} {
		for range 3 {
			require.Equal(t, x.want, p(x.loads, 10), x.name)
		}
	}
}

// The beginnings remembered are bounded, what is sent again stays, and salts are apart.
func TestAffinity(t *testing.T) {
	a := newAffinity(2, 8, 4)
	chain := func(seed, n int, salt string) []uint64 {
		return a.chain(&Request{IDs: prompt(seed, n), CacheSalt: salt})
	}
	require.Len(t, chain(1, 16, ""), 3, "the last token runs anyhow")
	a.add(1, chain(1, 17, ""))
	require.Equal(t, 16, a.expected(1, chain(1, 17, "")))
	require.Equal(t, 12, a.expected(1, chain(1, 16, "")))
	require.Zero(t, a.expected(0, chain(1, 17, "")))
	require.Zero(t, a.expected(1, chain(1, 17, "x")))
	for seed := range 100 {
		a.add(1, chain(seed%13, 13, string(rune(seed))))
		a.add(1, chain(1, 17, ""))
		require.LessOrEqual(t, len(a.sent[1].recent)+len(a.sent[1].old), 16)
	}
	require.Equal(t, 16, a.expected(1, chain(1, 17, "")), "used all the time")
	require.Zero(t, a.expected(1, chain(3, 13, "\x03")), "long ago")
	a.add(0, chain(1, 64, "")) // longer than the cache: its beginning counts
	require.Equal(t, 32, a.expected(0, chain(1, 64, "")))
}

// Four candidates a posting on four replicas: the posting is computed on one replica only, and yet all have work. In turn, every replica
// computes every posting.
func TestFrontDoorKeepsPostingsTogether(t *testing.T) {
	const postings, size = 9, 40
	computed := map[string]int64{}
	for name, policy := range map[string]Policy{"in turn": RoundRobin(), "prefix": PrefixAware(2 * size)} {
		cfg := config(layout{"dp4", 1, 4})
		cfg.PrefixCaching, cfg.NumBlocks, cfg.Policy = true, 200, policy
		r := start(t, cfg, 10*time.Second)
		for candidate := range 4 {
			var hs []*Handle
			for p := range postings {
				h, err := r.Submit(t.Context(), Request{IDs: append(prompt(p*13*7+p, size), prompt(candidate, 4)...), MaxTokens: 1, IgnoreEOS: true})
				require.NoError(t, err)
				hs = append(hs, h)
			}
			for _, h := range hs {
				_, err := h.Wait(t.Context())
				require.NoError(t, err)
			}
		}
		s := r.Stats()
		computed[name] = s.Total().ContextTokens
		for i, rep := range s.Replicas {
			require.Positive(t, rep.ContextTokens, "replica %d", i)
		}
		r.close(t)
	}
	require.EqualValues(t, postings*(size+4*4), computed["prefix"])
	require.Greater(t, computed["in turn"], computed["prefix"])
}

// What is expected in the cache is not to be done, unless every token runs for its logits.
func TestLoadCountsWhatIsToDo(t *testing.T) {
	cfg := config(layouts[0])
	cfg.PrefixCaching = true
	hold := make(chan struct{})
	r := start(t, cfg, 10*time.Second, func(_ int, m *rankModel) {
		m.before = func(*batch.Batch) error { <-hold; return nil }
	})
	var hs []*Handle
	for _, x := range []struct {
		echo bool
		max  int
		cost int64
	}{{false, 5, 45}, {false, 5, 5 + 40 - 36}, {true, 5, 45}, {false, math.MaxInt, 64 - 36}} {
		before := r.replicas[0].tokens.Load()
		h, err := r.Submit(t.Context(), Request{IDs: prompt(1, 40), MaxTokens: x.max, Echo: x.echo, IgnoreEOS: true})
		require.NoError(t, err)
		require.Equal(t, x.cost, r.replicas[0].tokens.Load()-before)
		hs = append(hs, h)
	}
	close(hold)
	for _, h := range hs {
		_, err := h.Wait(t.Context())
		require.NoError(t, err)
	}
	r.close(t)
}

// Everybody sends the same beginning: no replica gets more than the bound ahead of another.
func TestFrontDoorBoundsImbalance(t *testing.T) {
	cfg := config(layout{"dp4", 1, 4})
	cfg.PrefixCaching, cfg.Policy = true, PrefixAware(100)
	hold := make(chan struct{})
	r := start(t, cfg, 10*time.Second, func(_ int, m *rankModel) {
		m.before = func(*batch.Batch) error { <-hold; return nil }
	})
	var hs []*Handle
	for range 40 {
		h, err := r.Submit(t.Context(), Request{IDs: prompt(1, 40), MaxTokens: 20, IgnoreEOS: true})
		require.NoError(t, err)
		hs = append(hs, h)
		loads := make([]int, 4)
		for i, rep := range r.replicas {
			loads[i] = int(rep.tokens.Load())
		}
		require.LessOrEqual(t, slices.Max(loads)-slices.Min(loads), 100+60, "%v", loads)
	}
	close(hold)
	for _, h := range hs {
		_, err := h.Wait(t.Context())
		require.NoError(t, err)
	}
	for i, rep := range r.Stats().Replicas {
		require.Positive(t, rep.Steps, "replica %d", i)
	}
	r.close(t)
}
