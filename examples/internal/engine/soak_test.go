package engine

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Random requests with random aborts on eight replicas: nothing leaks, everybody gets what is theirs.
func TestSoak(t *testing.T) {
	n := 2000
	if testing.Short() {
		n = 200
	}
	dp8, dp2tp4 := layout{"dp8", 1, 8}, layout{"dp2tp4", 4, 2}
	for _, x := range []struct {
		name string
		layout
		cache, wait bool
		policy      Policy
	}{
		{"dp8", dp8, false, false, LeastTokens()},
		{"dp2tp4", dp2tp4, false, false, LeastTokens()},
		{"dp8 cache", dp8, true, false, PrefixAware(100)},
		{"dp8 cache wait", dp8, true, true, PrefixAware(100)},
		{"dp2tp4 cache wait", dp2tp4, true, true, RoundRobin()},
	} {
		t.Run(x.name, func(t *testing.T) {
			cfg := config(x.layout)
			cfg.NumBlocks, cfg.Policy, cfg.PrefixCaching, cfg.WaitForPrefix = 20, x.policy, x.cache, x.wait
			r := start(t, cfg, 10*time.Second)
			rng := rand.New(rand.NewPCG(1, 2))
			var wg sync.WaitGroup
			places := make(chan struct{}, 64)
			for i := range n {
				ids := prompt(i, 1+rng.IntN(40))
				copy(ids, prompt(-1-i/4%8, 40)[:rng.IntN(40)]) // four that begin alike, and again after 32
				req := Request{IDs: ids, MaxTokens: 1 + rng.IntN(20), Echo: rng.IntN(5) == 0, Logprobs: rng.IntN(4) - 1}
				abort, later := rng.IntN(3) == 0, rng.IntN(4)
				if rng.IntN(200) == 0 {
					wg.Wait() // an idle gap
				}
				places <- struct{}{}
				wg.Go(func() {
					defer func() { <-places }()
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					h, err := r.Submit(ctx, req)
					require.NoError(t, err)
					if abort {
						for range later {
							_, _ = h.Next(ctx)
						}
						cancel()
					}
					out, err := h.Wait(t.Context())
					require.NoError(t, err)
					ids, reason := want(&req, &cfg)
					if out.Reason == FinishAbort {
						require.True(t, abort)
						require.LessOrEqual(t, len(out.IDs), len(ids))
						ids = ids[:len(out.IDs)]
					} else {
						require.Equal(t, reason, out.Reason)
					}
					if len(ids) > 0 {
						require.Equal(t, ids, out.IDs)
					}
				})
			}
			wg.Wait()
			total := r.Stats().Total()
			require.EqualValues(t, n, total.Stopped+total.AtLength+total.Aborted)
			require.Positive(t, total.Preemptions)
			require.Equal(t, x.cache, total.PrefixHitTokens > 0)
			r.close(t)
		})
	}
}

// What a step costs beside the model: eight replicas that generate.
func BenchmarkStep(b *testing.B) {
	for _, l := range layouts {
		b.Run(l.name, func(b *testing.B) {
			cfg := config(l)
			cfg.MaxModelLen, cfg.NumBlocks = 1<<20, 1<<18
			r := start(b, cfg, 10*time.Second, func(_ int, m *rankModel) { m.names = nil })
			b.ReportAllocs()
			var hs []*Handle
			b.ResetTimer()
			for range l.dp {
				h, err := r.Submit(b.Context(), Request{IDs: prompt(1, 4), MaxTokens: b.N, Logprobs: -1, IgnoreEOS: true})
				require.NoError(b, err)
				hs = append(hs, h)
			}
			for _, h := range hs {
				_, err := h.Wait(b.Context())
				require.NoError(b, err)
			}
			b.StopTimer()
			r.close(b)
		})
	}
}
