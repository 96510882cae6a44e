package server

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/examples/internal/deploy"
	"github.com/weftgo/weft/internal/race"
)

// variant is a way to serve that must not show in answers.
type variant struct {
	layout         string
	prefix, chunks bool
}

func (v variant) String() string {
	return fmt.Sprintf("%s/prefix=%v/chunks=%v", v.layout, v.prefix, v.chunks)
}

// variants are all layouts with the prefix cache and chunking on and off; with -short each layout has one of the four, in turn, and
// with the race detector some layouts have.
func variants() (all []variant) {
	for i, l := range []string{"tp1", "tp2", "tp4", "tp8", "tp8+ep8", "dp2tp4+ep8:agrs", "dp2tp4+ep8:alltoall", "dp4tp2+ep8:agrs", "dp4tp2+ep8:alltoall",
		"dp8", "dp8+ep8:agrs", "dp8+ep8:alltoall"} {
		for j := range 4 {
			if (testing.Short() || race.Enabled) && j != i%4 || race.Enabled && i%5 != 0 && i != 11 {
				continue
			}
			all = append(all, variant{l, j&1 != 0, j&2 != 0})
		}
	}
	return all
}

// layoutRequests are asked of every variant: scores, greedy answers with 20 alternatives, seeded ones with every filter, chats, stops.
func layoutRequests(t *testing.T) (reqs []object) {
	names, seeds := []string{"sentence", "unicode", "chat-0", "short-0", "short-1"}, 24
	if testing.Short() || race.Enabled {
		names, seeds = names[:3], 12
	}
	g := goldens(t, names...)
	for _, name := range slices.Sorted(maps.Keys(g)) {
		ids := g[name].IDs
		reqs = append(reqs,
			object{"prompt": ids, "max_tokens": 6, "temperature": 0, "logprobs": 20, "ignore_eos": true},
			object{"prompt": ids, "max_tokens": 0, "echo": true, "logprobs": 5, "prompt_logprobs": 2},
			object{"prompt": ids, "max_tokens": 3, "echo": true, "logprobs": 1, "temperature": 0, "n": 2},
			object{"prompt": ids, "max_tokens": 24, "temperature": 0, "ignore_eos": true, "stop": []string{" of", "e "}, "min_tokens": 2})
	}
	ids := g["sentence"].IDs
	for seed := range seeds {
		reqs = append(reqs, object{"prompt": ids, "max_tokens": 8, "seed": seed * 1000, "n": 3, "ignore_eos": true, "logprobs": 1,
			"temperature": []float64{0.7, 1, 1.5}[seed%3], "top_p": []float64{1, 0.9}[seed%2], "top_k": []int{0, 0, 40}[seed/2%3],
			"min_p": []float64{0, 0.01}[seed/3%2], "presence_penalty": 0.25 * float64(seed%4), "repetition_penalty": 1 + 0.1*float64(seed%2)})
	}
	for _, r := range reqs {
		r["return_token_ids"], r["return_tokens_as_token_ids"] = true, true
	}
	return append(reqs, object{"messages": []object{{"role": "user", "content": "Hello there"}}, "max_tokens": 5, "temperature": 0, "logprobs": true,
		"top_logprobs": 3, "return_token_ids": true})
}

// ask sends all requests at once.
func (r *rig) ask(reqs []object) []answerOf {
	answers := make([]answerOf, len(reqs))
	errs := make([]error, len(reqs))
	var wg sync.WaitGroup
	for i, req := range reqs {
		wg.Go(func() {
			path := "/v1/completions"
			if req["messages"] != nil {
				path = "/v1/chat/completions"
			}
			resp := r.post(path, req)
			defer resp.Body.Close()
			errs[i] = json.NewDecoder(resp.Body).Decode(&answers[i])
			if errs[i] == nil && resp.StatusCode != 200 {
				errs[i] = fmt.Errorf("status %d: %+v", resp.StatusCode, answers[i].Error)
			}
		})
	}
	wg.Wait()
	for i, err := range errs {
		require.NoError(r.t, err, "%v", reqs[i])
	}
	return answers
}

// mostLogprobDifference is what the logprobs of two variants may differ by: sums of float32 go in another order with another number of
// ranks. Measured over all variants: 5.5e-5, in a log-probability of -13.8; 3.8e-5 in those of the texts' own tokens.
const mostLogprobDifference = 1e-4

// requireSame holds answers against those of the reference: text, ids and reasons are equal, logprobs up to rounding. It returns the
// largest differences: of all, and of the tokens' own.
func requireSame(t *testing.T, req object, want, got answerOf) (most, chosen float64) {
	t.Helper()
	what := func() string { // the request without its long prompt
		r := maps.Clone(req)
		delete(r, "prompt")
		return fmt.Sprint(r)
	}
	near := func(a, b float64, field string) {
		t.Helper()
		most = max(most, math.Abs(a-b))
		if math.Abs(a-b) > mostLogprobDifference {
			require.InDelta(t, a, b, mostLogprobDifference, "%s, %s", field, what())
		}
	}
	require.Len(t, got.Choices, len(want.Choices))
	for i, w := range want.Choices {
		c := got.Choices[i]
		require.Equal(t, w.TokenIDs, c.TokenIDs, "choice %d of %s", i, what())
		require.Equal(t, []any{w.Text, w.Message.Content, w.FinishReason, w.StopReason}, []any{c.Text, c.Message.Content, c.FinishReason, c.StopReason}, what())
		require.Equal(t, w.Logprobs == nil, c.Logprobs == nil)
		require.Len(t, c.PromptLogprobs, len(w.PromptLogprobs))
		for j, p := range w.PromptLogprobs {
			require.Len(t, c.PromptLogprobs[j], len(p))
			for id, x := range p {
				if y, ok := c.PromptLogprobs[j][id]; ok { // the last may be another of the same value
					near(x.Logprob, y.Logprob, "prompt_logprobs")
				}
			}
		}
		if w.Logprobs == nil {
			continue
		}
		require.Equal(t, w.Logprobs.Tokens, c.Logprobs.Tokens)
		require.Equal(t, w.Logprobs.TextOffset, c.Logprobs.TextOffset)
		for j, x := range w.Logprobs.TokenLogprobs {
			require.Equal(t, x == nil, c.Logprobs.TokenLogprobs[j] == nil)
			if x != nil {
				near(*x, *c.Logprobs.TokenLogprobs[j], "token_logprobs")
				chosen = max(chosen, math.Abs(*x-*c.Logprobs.TokenLogprobs[j]))
			}
			a, b := slices.Sorted(maps.Values(w.Logprobs.TopLogprobs[j])), slices.Sorted(maps.Values(c.Logprobs.TopLogprobs[j]))
			require.Len(t, b, len(a))
			for k := range a {
				near(a[k], b[k], "top_logprobs")
			}
		}
		for j, x := range w.Logprobs.Content {
			near(x.Logprob, c.Logprobs.Content[j].Logprob, "chat logprobs")
		}
	}
	require.Equal(t, []int{want.Usage.Prompt, want.Usage.Completion}, []int{got.Usage.Prompt, got.Usage.Completion})
	return most, chosen
}

// Answers are the same on every layout, with the prefix cache and with chunked prefill on or off, in whatever batch: text and
// ids, also of draws with a seed, and log-probabilities up to rounding.
func TestEveryLayout(t *testing.T) {
	reqs := layoutRequests(t)
	var want []answerOf
	most, chosen := 0.0, 0.0
	for i, v := range variants() {
		t.Run(v.String(), func(t *testing.T) {
			r := start(t, v.layout, func(d *deploy.Config, _ *Config) {
				d.PrefixCaching, d.WaitForPrefix = v.prefix, v.prefix
				d.MaxBatchedTokens = 4096
				if v.chunks {
					d.MaxBatchedTokens = 24 * d.Layout.DP // less than nearly all prompts
				}
			})
			cached := 0
			for round := range 2 { // the second finds the first in the cache
				answers := r.ask(reqs)
				if i == 0 && round == 0 {
					want = answers
				}
				for k, a := range answers {
					m, c := requireSame(t, reqs[k], want[k], a)
					most, chosen = max(most, m), max(chosen, c)
					cached += a.Usage.Details.Cached
				}
			}
			require.Equal(t, v.prefix, cached > 0)
			stats := r.d.Engine.Stats().Total()
			large := uint64(0) // steps of more than 32 tokens
			for k, n := range stats.StepTokens.Counts {
				if k > 0 && stats.StepTokens.Bounds[k-1] >= 32 {
					large += n
				}
			}
			require.Equal(t, v.chunks, large == 0, "prompts are cut")
			r.idle()
		})
	}
	t.Logf("largest difference of a log-probability: %.2g, of a token's own %.2g", most, chosen)
}
