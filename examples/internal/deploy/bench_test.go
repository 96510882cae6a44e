package deploy

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/examples/internal/bundled"
	"github.com/weftgo/weft/examples/internal/checkpoint"
	"github.com/weftgo/weft/examples/internal/engine"
	"github.com/weftgo/weft/examples/internal/workload"
)

// What the prefix cache saves: four candidates of one posting at a time, each posting new (cold, shared) or seen before (replay).
func BenchmarkCandidates(b *testing.B) {
	f, err := checkpoint.OpenFS(bundled.FS(), bundled.Name)
	require.NoError(b, err)
	defer f.Close()
	ids := postings(b, f, 8, 640)
	for _, x := range []struct {
		name string
		Config
		replay bool
	}{
		{"cold", Config{}, false},
		{"shared", Config{PrefixCaching: true}, false},
		{"shared+wait", Config{PrefixCaching: true, WaitForPrefix: true}, false},
		{"replay", Config{PrefixCaching: true}, true},
	} {
		b.Run(x.name, func(b *testing.B) {
			var prompt, cached int
			n := 0
			for b.Loop() {
				b.StopTimer()
				d := open(b, f, "tp1", x.Config)
				if x.replay {
					each(b, d, ids)
				}
				b.StartTimer()
				p, c := each(b, d, ids)
				prompt, cached, n = prompt+p, cached+c, n+len(ids)
			}
			b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "req/s")
			b.ReportMetric(100*float64(cached)/float64(prompt), "%cached")
		})
	}
}

// each answers four candidates after four.
func each(b *testing.B, d *Deployment, ids [][]int32) (prompt, cached int) {
	for i := 0; i < len(ids); i += 4 {
		var reqs []engine.Request
		for _, p := range ids[i : i+4] {
			reqs = append(reqs, engine.Request{IDs: p, MaxTokens: 4})
			prompt += len(p)
		}
		_, c := answer(b, d, reqs)
		cached += c
	}
	return prompt, cached
}

// The judge's workload, in a closed loop: its four candidates of a posting come one behind the other.
func BenchmarkWorkload(b *testing.B) {
	f, err := checkpoint.OpenFS(bundled.FS(), bundled.Name)
	require.NoError(b, err)
	defer f.Close()
	tok, err := f.Tokenizer()
	require.NoError(b, err)
	requests, err := workload.Requests(workload.Short, 1)
	require.NoError(b, err)
	for _, name := range []string{"tp1", "tp8+ep8", "dp8+ep8"} {
		for _, x := range []struct {
			name string
			Config
			replay bool
		}{
			{"off", Config{}, false},
			{"round robin", Config{PrefixCaching: true}, false},
			{"round robin+wait", Config{PrefixCaching: true, WaitForPrefix: true}, false},
			{"prefix aware", Config{PrefixCaching: true, Policy: engine.PrefixAware(4096)}, false},
			{"prefix aware+wait", Config{PrefixCaching: true, WaitForPrefix: true, Policy: engine.PrefixAware(4096)}, false},
			{"replay", Config{PrefixCaching: true, Policy: engine.PrefixAware(4096)}, true},
		} {
			if name != "dp8+ep8" && (x.name == "prefix aware" || x.name == "prefix aware+wait") {
				continue
			}
			b.Run(name+"/"+x.name, func(b *testing.B) {
				var seconds float64
				var prompt, cached, n int
				for b.Loop() {
					d := open(b, f, name, x.Config)
					run := func() workload.Report {
						r, err := workload.Run(b.Context(), requests, workload.Short.Concurrency, func(ctx context.Context, _ int, r workload.Request) (workload.Result, error) {
							h, err := d.Engine.Submit(ctx, engine.Request{IDs: tok.Encode(r.Prompt), MaxTokens: r.MaxTokens, Logprobs: r.TopLogprobs})
							if err != nil {
								return workload.Result{}, err
							}
							o, err := h.Wait(ctx)
							return workload.Result{PromptTokens: o.Usage.PromptTokens, OutputTokens: len(o.IDs)}, err
						}, nil)
						require.NoError(b, err)
						return r
					}
					if x.replay {
						run()
					}
					before := d.Engine.Stats().Total().PrefixHitTokens
					r := run()
					seconds += r.Wall.Seconds()
					n, prompt, cached = n+r.NumRequests, prompt+r.PromptTokens, cached+int(d.Engine.Stats().Total().PrefixHitTokens-before)
				}
				b.ReportMetric(float64(n)/seconds, "req/s")
				b.ReportMetric(100*float64(cached)/float64(prompt), "%cached")
			})
		}
	}
}
