package engine

import (
	"context"
	"fmt"
	"io"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/examples/internal/batch"
	"github.com/weftgo/weft/examples/internal/batch/batchtest"
	"github.com/weftgo/weft/examples/internal/sampling"
	"github.com/weftgo/weft/trace"
)

func TestGreedyOnEveryLayout(t *testing.T) {
	for _, l := range layouts {
		t.Run(l.name, func(t *testing.T) {
			cfg := config(l)
			r := start(t, cfg, 10*time.Second)
			var wg sync.WaitGroup
			for i := range 24 {
				req := Request{IDs: prompt(i, 1+i*2), MaxTokens: 1 + i%12, MinTokens: i % 3 * (i % 12) / 2, Logprobs: i%4*3 - 1, IgnoreEOS: i%5 == 0, Stop: []int32{3}}
				wg.Go(func() {
					out := r.do(t, req)
					ids, reason := want(&req, &cfg)
					require.Equal(t, ids, out.IDs)
					require.Equal(t, reason, out.Reason)
					require.Equal(t, Usage{PromptTokens: len(req.IDs), CompletionTokens: len(ids)}, out.Usage)
					requireLogprobs(t, &req, &out)
				})
			}
			wg.Wait()
			r.close(t)
		})
	}
}

// requireLogprobs holds an output's log-probabilities against the stand-in's own.
func requireLogprobs(t *testing.T, req *Request, out *Output) {
	prefix := append([]int32{}, req.IDs...)
	if req.Logprobs < 0 {
		require.Nil(t, out.Logprobs)
	} else {
		require.Len(t, out.Logprobs, len(out.IDs))
	}
	if req.Logprobs <= 0 {
		require.Nil(t, out.Top)
	} else {
		require.Len(t, out.Top, len(out.IDs))
	}
	for i, id := range out.IDs {
		z := batchtest.Logits(prefix, vocab)
		prefix = append(prefix, id)
		if req.Logprobs < 0 {
			continue
		}
		top := make([]TopLogprob, req.Logprobs)
		lp, n, err := sampling.Logprobs(z, id, top)
		require.NoError(t, err)
		require.Equal(t, lp, out.Logprobs[i])
		if req.Logprobs > 0 {
			require.Equal(t, top[:n], out.Top[i])
		}
	}
}

// Prompts longer than a step are scored chunk by chunk, also when they are preempted in between.
func TestEcho(t *testing.T) {
	for _, l := range layouts {
		t.Run(l.name, func(t *testing.T) {
			cfg := config(l)
			cfg.NumBlocks, cfg.MaxLogits = 16, 7
			r := start(t, cfg, 10*time.Second)
			var wg sync.WaitGroup
			for i := range 20 {
				req := Request{IDs: prompt(i, 1+i*3%50), MaxTokens: i % 3 * 4, Logprobs: i%3 - 1, Echo: true}
				wg.Go(func() {
					out := r.do(t, req)
					ids, reason := want(&req, &cfg)
					require.Equal(t, ids, out.IDs)
					require.Equal(t, reason, out.Reason)
					require.Len(t, out.Echo, len(req.IDs))
					require.True(t, math.IsNaN(float64(out.Echo[0])))
					if req.Logprobs > 0 {
						require.Len(t, out.EchoTop, len(req.IDs))
						require.Nil(t, out.EchoTop[0])
					} else {
						require.Nil(t, out.EchoTop)
					}
					for p := 1; p < len(req.IDs); p++ {
						top := make([]TopLogprob, max(req.Logprobs, 0))
						lp, _, err := sampling.Logprobs(batchtest.Logits(req.IDs[:p], vocab), req.IDs[p], top)
						require.NoError(t, err)
						require.Equal(t, lp, out.Echo[p], "position %d", p)
						if req.Logprobs > 0 {
							require.Equal(t, top, out.EchoTop[p])
						}
					}
					requireLogprobs(t, &req, &out)
				})
			}
			wg.Wait()
			r.close(t)
		})
	}
}

// The seed's case of idle ranks: one request on eight replicas, then none, then one again.
func TestOneRequestThenNoneThenOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := config(layout{"dp8", 1, 8})
		cfg.Tracer = trace.New(8)
		r := start(t, cfg, 10*time.Second)
		req := Request{IDs: prompt(5, 20), MaxTokens: 5, IgnoreEOS: true}
		ids, _ := want(&req, &cfg)

		require.Equal(t, ids, r.do(t, req).IDs)
		synctest.Wait()
		asleep := r.Stats()
		require.EqualValues(t, 6, asleep.Steps, "20 tokens in chunks of 16 and 4, then 4 more steps")
		require.Equal(t, []int{1, 0, 0, 0, 0, 0, 0, 0}, asleep.LastTokens)
		time.Sleep(time.Hour)
		require.Equal(t, asleep, r.Stats(), "nobody runs or agrees on anything while there is no work")

		require.Equal(t, ids, r.do(t, req).IDs)
		synctest.Wait()
		s := r.Stats()
		require.EqualValues(t, 12, s.Steps)
		require.EqualValues(t, 6, s.Replicas[0].Steps)
		require.EqualValues(t, 6, s.Replicas[1].Steps)
		require.EqualValues(t, 6, s.Replicas[0].DummySteps)
		require.EqualValues(t, 12, s.Replicas[7].DummySteps)
		total := s.Total()
		require.EqualValues(t, 40, total.ContextTokens, "dummy steps are in no other number")
		require.EqualValues(t, 8, total.GenerationTokens)
		require.EqualValues(t, 2, total.AtLength)
		r.close(t)
		require.Equal(t, map[string]int{"dummy_step": 12}, r.models[7].names)
		require.Equal(t, map[string]int{"dummy_step": 6, "execute_context_1(16)_generation_0(0)": 1,
			"execute_context_1(4)_generation_0(0)": 1, "execute_context_0(0)_generation_1(1)": 4}, r.models[1].names)
	})
}

func TestStreaming(t *testing.T) {
	cfg := config(layouts[2])
	r := start(t, cfg, 10*time.Second)
	req := Request{IDs: prompt(3, 9), MaxTokens: 12, Logprobs: 2, IgnoreEOS: true}
	ids, _ := want(&req, &cfg)
	h, err := r.Submit(t.Context(), req)
	require.NoError(t, err)
	for i, id := range ids {
		e, err := h.Next(t.Context())
		require.NoError(t, err)
		require.Equal(t, i, e.Index)
		require.Equal(t, id, e.ID)
		require.Len(t, e.Top, 2)
		require.Equal(t, i == len(ids)-1, e.Finish == FinishLength)
	}
	_, err = h.Next(t.Context())
	require.Equal(t, io.EOF, err)
	out, err := h.Wait(t.Context())
	require.NoError(t, err)
	require.Equal(t, ids, out.IDs)
	tm := out.Timing
	require.True(t, !tm.Scheduled.Before(tm.Submitted) && !tm.FirstToken.Before(tm.Scheduled) && !tm.Done.Before(tm.FirstToken), "%+v", tm)

	// A consumer that gives up waiting does not end the request.
	h, err = r.Submit(t.Context(), req)
	require.NoError(t, err)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = h.Wait(gone)
	require.ErrorIs(t, err, context.Canceled)
	out, err = h.Wait(t.Context())
	require.NoError(t, err)
	require.Equal(t, ids, out.IDs)
	r.close(t)
}

// Same seed, same tokens: alone, in company, on any replica of any layout.
func TestSeedDecidesAlone(t *testing.T) {
	seed := int64(-7)
	req := Request{IDs: prompt(2, 11), MaxTokens: 20, IgnoreEOS: true,
		Sampling: sampling.Params{Temperature: 2, TopP: 0.97, PresencePenalty: 0.1, Seed: &seed}}
	var first []int32
	for _, l := range layouts {
		cfg := config(l)
		cfg.NumBlocks = 20
		r := start(t, cfg, 10*time.Second)
		var wg sync.WaitGroup
		var mu sync.Mutex
		for range 10 {
			wg.Go(func() {
				out := r.do(t, req)
				mu.Lock()
				defer mu.Unlock()
				if first == nil {
					first = out.IDs
				}
				require.Equal(t, first, out.IDs, l.name)
			})
		}
		wg.Wait()
		r.close(t)
	}
	other := req
	seed2 := int64(8)
	other.Sampling.Seed = &seed2
	r := start(t, config(layouts[0]), 10*time.Second)
	require.NotEqual(t, first, r.do(t, other).IDs)
	r.close(t)
}

func TestAbortFreesBlocksAtOnce(t *testing.T) {
	cfg := config(layouts[0])
	in, out := make(chan struct{}), make(chan struct{})
	r := start(t, cfg, 10*time.Second, func(_ int, m *rankModel) {
		m.before = func(*batch.Batch) error { in <- struct{}{}; <-out; return nil }
	})
	a, err := r.Submit(t.Context(), Request{IDs: prompt(1, 8), MaxTokens: 8, IgnoreEOS: true})
	require.NoError(t, err)
	<-in
	ctx, cancel := context.WithCancel(t.Context())
	b, err := r.Submit(ctx, Request{IDs: prompt(1, 8), MaxTokens: 8})
	require.NoError(t, err)
	require.Equal(t, 2, r.Stats().Replicas[0].KVUsed)
	a.Abort() // in the middle of a step
	require.Zero(t, r.Stats().Replicas[0].KVUsed)
	require.Equal(t, 1, r.Stats().Replicas[0].Waiting)
	cancel()
	for _, h := range []*Handle{a, b} {
		o, err := h.Wait(t.Context())
		require.NoError(t, err)
		require.Equal(t, FinishAbort, o.Reason)
		require.Empty(t, o.IDs)
		_, err = h.Next(t.Context())
		require.Equal(t, io.EOF, err)
		h.Abort() // again: nothing
	}
	require.EqualValues(t, 2, r.Stats().Replicas[0].Aborted)
	out <- struct{}{}
	r.close(t)
}

func TestNaNFailsItsRequestOnly(t *testing.T) {
	cfg := config(layouts[4])
	r := start(t, cfg, 10*time.Second, func(rank int, m *rankModel) {
		m.after = func(logits []float32) []float32 {
			if rank == 3 && len(logits) > 0 {
				logits[5] = float32(math.NaN())
			}
			return logits
		}
	})
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			req := Request{IDs: prompt(i, 5), MaxTokens: 3, IgnoreEOS: true, Echo: i%2 == 0}
			h, err := r.Submit(t.Context(), req)
			require.NoError(t, err)
			out, err := h.Wait(t.Context())
			if h.replica.index == 3 {
				require.ErrorIs(t, err, sampling.ErrNotFinite)
				require.ErrorContains(t, err, fmt.Sprintf("request %d: ", h.ID()))
				require.Equal(t, FinishError, out.Reason)
				return
			}
			require.NoError(t, err)
			ids, _ := want(&req, &cfg)
			require.Equal(t, ids, out.IDs)
		})
	}
	wg.Wait()
	require.EqualValues(t, 1, r.Stats().Total().Failed)
	r.close(t)
}

func TestSubmitRefuses(t *testing.T) {
	r := start(t, config(layouts[0]), 10*time.Second)
	for text, req := range map[string]Request{
		"the prompt is empty": {MaxTokens: 1},
		"max_tokens 0 only":   {IDs: []int32{1}},
		"max_tokens -1":       {IDs: []int32{1}, MaxTokens: -1},
		"min_tokens 3 is not": {IDs: []int32{1}, MaxTokens: 2, MinTokens: 3},
		"logprobs 21":         {IDs: []int32{1}, MaxTokens: 2, Logprobs: 21},
		"prompt id 13 at position 1 is not in [0, 13)": {IDs: []int32{1, 13}, MaxTokens: 2},
		"stop id -1 at position 0":                     {IDs: []int32{1}, MaxTokens: 2, Stop: []int32{-1}},
		"all 13 ids as stop tokens":                    {IDs: []int32{1}, MaxTokens: 2, MinTokens: 1, Stop: []int32{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 3}},
		"temperature -1":                               {IDs: []int32{1}, MaxTokens: 2, Sampling: sampling.Params{Temperature: -1}},
		"the prompt has 64 tokens, and prompt and output together may have 64": {IDs: make([]int32, 64), MaxTokens: 1},
	} {
		_, err := r.Submit(t.Context(), req)
		require.ErrorIs(t, err, ErrInvalid)
		require.ErrorContains(t, err, text)
	}
	r.close(t)
	_, err := r.Submit(t.Context(), Request{IDs: []int32{1}, MaxTokens: 1})
	require.ErrorIs(t, err, ErrClosed)
}

func TestNewRefuses(t *testing.T) {
	r := start(t, config(layouts[1]), 10*time.Second)
	defer r.close(t)
	for text, change := range map[string]func(*Config){
		"tp 3 x dp 1 is not the world's 2 ranks": func(c *Config) { c.Layout.TP = 3 },
		"vocabulary of 0":                        func(c *Config) { c.VocabSize = 0 },
		"EOS id 13":                              func(c *Config) { c.EOS = []int32{13} },
		"0 blocks of 4":                          func(c *Config) { c.NumBlocks = 0 },
		"max seqs 0":                             func(c *Config) { c.MaxSeqs = 0 },
		"WaitForPrefix needs PrefixCaching":      func(c *Config) { c.WaitForPrefix = true },
	} {
		cfg := config(layouts[1])
		change(&cfg)
		_, err := New(r.world, make([]Model, 2), cfg)
		require.ErrorContains(t, err, text)
	}
	_, err := New(r.world, nil, config(layouts[1]))
	require.ErrorContains(t, err, "0 models for 2 ranks")
}

func TestPolicies(t *testing.T) {
	rr, least := RoundRobin(), LeastTokens()
	loads := []Load{{Requests: 2, Tokens: 50}, {Requests: 1, Tokens: 9}, {Requests: 3, Tokens: 9}}
	for i := range 7 {
		require.Equal(t, i%3, rr(loads, 1))
		require.Equal(t, 1, least(loads, 1))
	}
}

// A prompt that is preempted while it is scored gets every position once.
func TestPreemptedWhileScored(t *testing.T) {
	cfg := config(layouts[0])
	cfg.NumBlocks, cfg.MaxLogits = 16, 5
	r := start(t, cfg, 10*time.Second)
	grows := Request{IDs: prompt(1, 10), MaxTokens: 12, IgnoreEOS: true}
	scored := Request{IDs: prompt(2, 50), Echo: true} // with the first 10, all 16 blocks
	// The two meet unless the first has ended before the second comes, which a busy machine can bring about.
	for try := 0; try < 50 && r.Stats().Replicas[0].Preemptions == 0; try++ {
		a, err := r.Submit(t.Context(), grows)
		require.NoError(t, err)
		b, err := r.Submit(t.Context(), scored)
		require.NoError(t, err)
		out, err := a.Wait(t.Context())
		require.NoError(t, err)
		ids, _ := want(&grows, &cfg)
		require.Equal(t, ids, out.IDs)
		out, err = b.Wait(t.Context())
		require.NoError(t, err)
		require.Len(t, out.Echo, 50)
		for p := 1; p < 50; p++ {
			lp, _, err := sampling.Logprobs(batchtest.Logits(scored.IDs[:p], vocab), scored.IDs[p], nil)
			require.NoError(t, err)
			require.Equal(t, lp, out.Echo[p], "position %d", p)
		}
	}
	require.Positive(t, r.Stats().Replicas[0].Preemptions)
	r.close(t)
}

func TestLogitsAreBoundedByDefault(t *testing.T) {
	r := start(t, config(layouts[0]), time.Second)
	defer r.close(t)
	for vocab, rows := range map[int]int{151936: 441, 1 << 28: 4, 13: 5162220} {
		cfg := config(layouts[0])
		cfg.VocabSize = vocab
		require.NoError(t, cfg.check(r.world, 1))
		require.Equal(t, rows, cfg.MaxLogits)
	}
}
