package server

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/examples/internal/deploy"
)

// I-54: what lm-eval sends (ids, echo, max_tokens 0, logprobs 1) gives the goldens' values.
func TestScoring(t *testing.T) {
	for _, layout := range []string{"tp1", "dp2tp2+ep4:alltoall"} {
		r := start(t, layout)
		for _, g := range goldens(t, "sentence", "short-1") {
			for _, maxTokens := range []int{0, 1} {
				a := r.complete(object{"model": "judge", "prompt": g.IDs, "echo": true, "max_tokens": maxTokens, "logprobs": 1, "temperature": 0})
				require.Equal(t, maxTokens, a.Usage.Completion)
				require.Equal(t, len(g.IDs), a.Usage.Prompt)
				lp := a.Choices[0].Logprobs
				require.Len(t, lp.Tokens, len(g.IDs)+maxTokens)
				require.Len(t, lp.TextOffset, len(lp.Tokens))
				require.Len(t, lp.TopLogprobs, len(lp.Tokens))
				require.Len(t, lp.TokenLogprobs, len(lp.Tokens))
				require.Nil(t, lp.TokenLogprobs[0])
				require.Nil(t, lp.TopLogprobs[0])
				for i, want := range g.Echo {
					if i > 0 {
						require.InDelta(t, *want, *lp.TokenLogprobs[i], 1.1e-3, "%s: token %d", g.Name, i)
						require.Equal(t, *lp.TokenLogprobs[i], lp.TopLogprobs[i][lp.Tokens[i]])
					}
				}
				require.Equal(t, "length", *a.Choices[0].FinishReason)
				if maxTokens == 0 {
					require.Equal(t, strings.Join(lp.Tokens, ""), a.Choices[0].Text)
				}
			}
		}
		r.idle()
	}
}

// The judge's requests: greedy, top 20, natural logarithms of the raw distribution.
func TestGoldenCompletions(t *testing.T) {
	r := start(t, "tp2")
	for _, g := range goldens(t, "short-0", "hello", "unicode") {
		a := r.complete(object{"prompt": g.IDs, "max_tokens": len(g.Completion), "logprobs": 20, "temperature": 0, "return_token_ids": true,
			"return_tokens_as_token_ids": true, "ignore_eos": true})
		require.Equal(t, g.Completion, a.Choices[0].TokenIDs, g.Name)
		require.Equal(t, g.IDs, a.Choices[0].PromptTokenIDs)
		for i, step := range g.Steps {
			lp := a.Choices[0].Logprobs
			require.InDelta(t, step.Logprob, *lp.TokenLogprobs[i], 1.1e-3)
			require.Equal(t, fmt.Sprintf("token_id:%d", step.ID), lp.Tokens[i])
			require.Len(t, lp.TopLogprobs[i], 20)
			for _, top := range step.Top {
				if got, ok := lp.TopLogprobs[i][fmt.Sprintf("token_id:%d", int(top[0]))]; ok { // the 20th may be another of the same value
					require.InDelta(t, top[1], got, 1.1e-3)
				}
			}
		}
	}
}

func TestLists(t *testing.T) {
	r := start(t, "dp2")
	one := r.complete(object{"prompt": "Hello", "max_tokens": 3, "temperature": 0})
	two := r.complete(object{"prompt": "three of", "max_tokens": 3, "temperature": 0})
	a := r.complete(object{"prompt": []string{"Hello", "three of"}, "max_tokens": 3, "temperature": 0, "n": 2})
	require.Len(t, a.Choices, 4)
	for i, want := range []string{one.Choices[0].Text, one.Choices[0].Text, two.Choices[0].Text, two.Choices[0].Text} {
		require.Equal(t, i, a.Choices[i].Index)
		require.Equal(t, want, a.Choices[i].Text)
	}
	require.Equal(t, one.Usage.Prompt+two.Usage.Prompt, a.Usage.Prompt, "each prompt once")
	require.Equal(t, 12, a.Usage.Completion)
	require.Equal(t, a.Usage.Prompt+12, a.Usage.Total)
	require.Equal(t, "text_completion", a.Object)
	require.Equal(t, "judge", a.Model)
	require.Equal(t, "alias", r.complete(object{"model": "alias", "prompt": "x", "max_tokens": 1}).Model)
}

// I-59: a seed gives the same output in any batch, on any replica and at any n; choice i of n is seed + i alone.
func TestSeeds(t *testing.T) {
	ask := func(r *rig, seed, n int) (texts []string) {
		a := r.complete(object{"prompt": "The budget", "max_tokens": 6, "seed": seed, "n": n, "temperature": 1.5})
		for _, c := range a.Choices {
			texts = append(texts, c.Text)
		}
		return texts
	}
	alone := start(t, "tp1")
	want := ask(alone, 7, 3)
	require.Len(t, slices.Compact(slices.Sorted(slices.Values(want))), 3, "different seeds differ")
	require.Equal(t, want[:1], ask(alone, 7, 1))
	require.Equal(t, want[1:2], ask(alone, 8, 1))
	busy := start(t, "dp2+ep2:agrs")
	var wg sync.WaitGroup
	for i := range 6 {
		wg.Go(func() {
			if got := ask(busy, 7, 1+i%3); !slices.Equal(got, want[:1+i%3]) {
				t.Errorf("%q, want %q", got, want)
			}
		})
	}
	wg.Wait()
}

// I-51 over HTTP, streaming or not: the stop string is not in the text, nothing of it leaks, and what was held comes out.
func TestStopStrings(t *testing.T) {
	r := start(t, "tp1")
	body := object{"prompt": "Hello", "max_tokens": 12, "temperature": 0, "ignore_eos": true}
	whole := r.complete(body).Choices[0].Text
	require.Greater(t, len(whole), 12)
	stop := whole[5:10] // over a token's border, wherever that is
	cut := strings.Index(whole, stop)
	with := func(more object) object {
		b := object{}
		for _, m := range []object{body, more} {
			for k, v := range m {
				b[k] = v
			}
		}
		return b
	}
	a := r.complete(with(object{"stop": stop}))
	require.Equal(t, whole[:cut], a.Choices[0].Text)
	require.Equal(t, "stop", *a.Choices[0].FinishReason)
	require.Equal(t, stop, a.Choices[0].StopReason)
	a = r.complete(with(object{"stop": []string{"@@", stop}, "include_stop_str_in_output": true}))
	require.Equal(t, whole[:cut+len(stop)], a.Choices[0].Text)
	// A beginning of a stop string that does not go on is not lost.
	a = r.complete(with(object{"stop": whole[len(whole)-3:] + "@"}))
	require.Equal(t, whole, a.Choices[0].Text)
	require.Equal(t, "length", *a.Choices[0].FinishReason)
	for _, more := range []object{{"stop": stop}, {"stop": whole[len(whole)-3:] + "@"}} {
		want := r.complete(with(more))
		text := ""
		streamed := with(more)
		streamed["stream"] = true
		events := r.stream("/v1/completions", streamed)
		for i, e := range events {
			text += e.Choices[0].Text
			require.True(t, strings.HasPrefix(want.Choices[0].Text, text), "%q after event %d", text, i)
			require.Equal(t, i == len(events)-1, e.Choices[0].FinishReason != nil)
		}
		require.Equal(t, want.Choices[0].Text, text)
		require.Equal(t, want.Usage.Completion, len(events), "one chunk a token")
	}
	r.idle()
}

func TestStopTokens(t *testing.T) {
	r := start(t, "tp1")
	g := goldens(t, "short-0")["short-0"] // " three of five" and the end of the turn, or the like
	a := r.complete(object{"prompt": g.IDs, "max_tokens": 16, "temperature": 0, "return_token_ids": true})
	require.Equal(t, "stop", *a.Choices[0].FinishReason)
	require.Nil(t, a.Choices[0].StopReason, "the model's own end")
	require.Equal(t, g.Completion, a.Choices[0].TokenIDs)
	require.NotContains(t, a.Choices[0].Text, "<|")
	full := a.Choices[0].Text
	a = r.complete(object{"prompt": g.IDs, "max_tokens": 16, "temperature": 0, "stop_token_ids": g.Completion[1:2], "return_token_ids": true})
	require.Equal(t, g.Completion[:2], a.Choices[0].TokenIDs)
	require.Equal(t, float64(g.Completion[1]), a.Choices[0].StopReason)
	require.True(t, strings.HasPrefix(full, a.Choices[0].Text))
	a = r.complete(object{"prompt": g.IDs, "max_tokens": 16, "temperature": 0, "include_stop_str_in_output": true, "skip_special_tokens": false})
	require.Equal(t, full+"<|im_end|>", a.Choices[0].Text)
	a = r.complete(object{"prompt": g.IDs, "max_tokens": 8, "min_tokens": 8, "temperature": 0, "return_token_ids": true})
	require.Len(t, a.Choices[0].TokenIDs, 8)
	a = r.complete(object{"prompt": g.IDs, "max_tokens": 8, "ignore_eos": true, "temperature": 0})
	require.Equal(t, 8, a.Usage.Completion)
	a = r.complete(object{"prompt": "Hello", "max_tokens": 4, "logit_bias": object{"2047": 100}, "temperature": 0})
	require.Equal(t, 1, a.Usage.Completion)
}

// I-52: echo, logprobs and stream together: offsets count the characters that come before, echo included.
func TestEchoStream(t *testing.T) {
	r := start(t, "tp1")
	for _, logprobs := range []any{nil, 0, 2} {
		body := object{"prompt": "Grüße 😀 and", "max_tokens": 5, "echo": true, "logprobs": logprobs, "temperature": 0, "n": 2}
		whole := r.complete(body)
		body["stream"] = true
		texts, offsets, tokens := make([]string, 2), make([][]int, 2), make([][]string, 2)
		for _, e := range r.stream("/v1/completions", body) {
			require.Nil(t, e.Usage)
			c := e.Choices[0]
			if c.Logprobs != nil {
				offsets[c.Index] = append(offsets[c.Index], c.Logprobs.TextOffset...)
				tokens[c.Index] = append(tokens[c.Index], c.Logprobs.Tokens...)
			}
			texts[c.Index] += c.Text
		}
		for i, c := range whole.Choices {
			require.True(t, strings.HasPrefix(c.Text, "Grüße 😀 and"))
			require.Equal(t, c.Text, texts[i])
			if logprobs == nil {
				require.Nil(t, c.Logprobs)
				continue
			}
			require.Equal(t, c.Logprobs.TextOffset, offsets[i])
			require.Equal(t, c.Logprobs.Tokens, tokens[i])
			require.Len(t, c.Logprobs.Tokens, whole.Usage.Prompt+5)
			runes := []rune(c.Text)
			for j, token := range c.Logprobs.Tokens {
				if utf8.ValidString(token) && !strings.HasPrefix(token, "bytes:") {
					at := c.Logprobs.TextOffset[j]
					require.Equal(t, token, string(runes[at:at+utf8.RuneCountInString(token)]))
				}
				if top := c.Logprobs.TopLogprobs[j]; j > 0 {
					k := logprobs.(int)
					require.True(t, len(top) == k || len(top) == k+1, "%d alternatives", len(top))
					require.Contains(t, top, token)
				}
			}
		}
	}
}

// I-55 and I-57: usage only where it was asked for; one id, created and model in a stream; finish_reason in the last chunk.
func TestUsageInStreams(t *testing.T) {
	r := start(t, "tp1")
	for _, path := range []string{"/v1/completions", "/v1/chat/completions"} {
		for _, options := range []object{nil, {"include_usage": true}, {"include_usage": true, "continuous_usage_stats": true}} {
			body := object{"prompt": []string{"Hello"}, "messages": []object{{"role": "user", "content": "Hello"}}, "max_tokens": 4, "stream": true, "ignore_eos": true}
			delete(body, map[string]string{"/v1/completions": "messages", "/v1/chat/completions": "prompt"}[path])
			if options != nil {
				body["stream_options"] = options
			}
			events := r.stream(path, body)
			n := 4
			if options["include_usage"] == true {
				n++
				last := events[4]
				require.Empty(t, last.Choices)
				require.NotNil(t, last.Choices, "[] and not null")
				require.Equal(t, 4, last.Usage.Completion)
				require.Equal(t, last.Usage.Prompt+4, last.Usage.Total)
			}
			require.Len(t, events, n)
			for i, e := range events {
				require.Equal(t, []any{events[0].ID, events[0].Created, events[0].Model, events[0].Object}, []any{e.ID, e.Created, e.Model, e.Object})
				if i < 4 {
					require.Len(t, e.Choices, 1)
					require.Equal(t, i == 3, e.Choices[0].FinishReason != nil)
					require.Equal(t, options["continuous_usage_stats"] == true, e.Usage != nil)
					if e.Usage != nil {
						require.Equal(t, i+1, e.Usage.Completion)
					}
				}
			}
		}
	}
}

// I-48 and I-49: a scored prompt is computed whole after a prefix hit, and a prompt that is all in the cache still answers.
func TestPrefixCache(t *testing.T) {
	r := start(t, "tp1", func(d *deploy.Config, _ *Config) { d.PrefixCaching = true })
	ids := goldens(t, "short-1")["short-1"].IDs[:64] // whole blocks
	score := object{"prompt": ids, "echo": true, "max_tokens": 2, "logprobs": 3, "temperature": 0, "ignore_eos": true}
	plain := object{"prompt": ids, "max_tokens": 2, "logprobs": 3, "temperature": 0, "ignore_eos": true}
	cold := r.complete(score)
	first := r.complete(plain)
	again := r.complete(plain)
	require.Positive(t, again.Usage.Details.Cached)
	require.Less(t, again.Usage.Details.Cached, len(ids), "at least one token runs")
	require.Equal(t, first.Choices, again.Choices)
	require.Equal(t, cold.Choices, r.complete(score).Choices, "the same bits")
	plain["cache_salt"] = "another"
	salted := r.complete(plain)
	require.Zero(t, salted.Usage.Details.Cached)
	require.Equal(t, first.Choices, salted.Choices)
	r.idle()
}

// I-58, and what else only the engine or the tokenizer can refuse.
func TestRefused(t *testing.T) {
	r := start(t, "tp1")
	path := "/v1/completions"
	text := r.refused(path, 400, object{"prompt": make([]int, 1020), "max_tokens": 16})
	for _, number := range []string{"1024", "1020", "16", "1036"} {
		require.Contains(t, text, number)
	}
	for field, body := range map[string]object{"prompt": {"prompt": make([]int, 1020), "max_tokens": 16}, "max_tokens": {"prompt": "x", "max_tokens": 1024}} {
		resp := r.post(path, body)
		raw, err := io.ReadAll(resp.Body)
		require.NoError(t, errors.Join(err, resp.Body.Close()))
		require.Contains(t, string(raw), `"param":"`+field+`"`)
	}
	require.Contains(t, r.refused(path, 400, object{"prompt": make([]int, 1030), "max_tokens": 0, "echo": true}), "1030")
	require.Contains(t, r.refused(path, 404, object{"prompt": "x", "model": "gpt"}), "gpt")
	require.Contains(t, r.refused(path, 400, object{"prompt": "x", "n": 0}), "n is 0")
	require.Contains(t, r.refused(path, 400, object{"prompt": "x", "logprobs": 21}), "20")
	require.Contains(t, r.refused(path, 400, object{"prompt": "x", "guided_json": "{}"}), "guided_json")
	require.Contains(t, r.refused(path, 400, "{"), "JSON")
	require.Contains(t, r.refused("/v1/chat/completions", 400, object{"messages": []object{{"role": "user", "content": "x"}}, "max_tokens": 2000}), "2000")
	a := r.complete(object{"prompt": make([]int, 1030), "truncate_prompt_tokens": -1, "max_tokens": 4})
	require.Equal(t, 1020, a.Usage.Prompt)
	a = r.complete(object{"prompt": []int{5, 6, 7}, "truncate_prompt_tokens": 2, "max_tokens": 1, "return_token_ids": true})
	require.Equal(t, []int32{6, 7}, a.Choices[0].PromptTokenIDs)
	a = r.complete(object{"prompt": "x", "max_tokens": 1, "frobnicate": true})
	require.Equal(t, 1, a.Usage.Completion)
	r.idle()
}

func TestPromptLogprobs(t *testing.T) {
	r := start(t, "tp1")
	g := goldens(t, "sentence")["sentence"]
	a := r.complete(object{"prompt": g.IDs, "prompt_logprobs": 2, "logprobs": 1, "max_tokens": 1, "temperature": 0})
	list := a.Choices[0].PromptLogprobs
	require.Len(t, list, len(g.IDs))
	require.Nil(t, list[0])
	for i := 1; i < len(g.IDs); i++ {
		own, ok := list[i][fmt.Sprint(g.IDs[i])]
		require.True(t, ok)
		require.InDelta(t, *g.Echo[i], own.Logprob, 1.1e-3)
		require.True(t, len(list[i]) == 3 && own.Rank == nil || len(list[i]) == 2 && *own.Rank <= 2)
	}
	require.Len(t, a.Choices[0].Logprobs.TopLogprobs[0], 1)
}

// I-53: an id that cannot come has no infinity in JSON. (The bundled model has none; package api tests the clamp.)
func TestFinite(t *testing.T) {
	r := start(t, "tp1")
	a := r.complete(object{"prompt": "x", "max_tokens": 2, "logprobs": 20, "logit_bias": object{"5": -100}})
	for _, lp := range a.Choices[0].Logprobs.TokenLogprobs {
		require.False(t, math.IsInf(*lp, 0))
	}
}

func TestIDsOnly(t *testing.T) {
	r := start(t, "tp1", func(_ *deploy.Config, c *Config) { c.Tokenizer, c.Template = nil, nil })
	a := r.complete(object{"prompt": []int{5, 6}, "max_tokens": 3, "logprobs": 1, "echo": true})
	require.Empty(t, a.Choices[0].Text)
	require.Len(t, a.Choices[0].TokenIDs, 3)
	require.Equal(t, []int32{5, 6}, a.Choices[0].PromptTokenIDs)
	require.Equal(t, "token_id:5", a.Choices[0].Logprobs.Tokens[0])
	require.Contains(t, r.refused("/v1/completions", 400, object{"prompt": "text"}), "no tokenizer")
	require.Contains(t, r.refused("/v1/chat/completions", 400, object{"messages": []object{{"role": "user", "content": "x"}}}), "no tokenizer")
	require.Contains(t, r.refused("/tokenize", 400, object{"prompt": "x"}), "no tokenizer")
}
