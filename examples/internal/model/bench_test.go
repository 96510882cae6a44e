package model

import (
	"context"
	"runtime"
	"runtime/pprof"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/comm/local"
	"github.com/weftgo/weft/examples/internal/checkpoint"
	"github.com/weftgo/weft/internal/gemm"
)

const (
	benchPrompts = 8
	benchTokens  = 704 // of each prompt
	benchStep    = 1024
	benchDecode  = 3 // steps after the prompts: the judge's answers have four tokens
)

// pass runs a plan on a world over and over, when asked.
type pass struct {
	start []chan bool
	done  sync.WaitGroup
	end   chan error
}

func newPass(t testing.TB, f *checkpoint.Folder, l layout, prompts []*golden, cfg Config) *pass {
	w, err := local.Open(local.Config{Ranks: l.parallel.Size()})
	require.NoError(t, err)
	p := makePlan(prompts, planOptions{replicas: l.parallel.DP, blockSize: DefaultBlockSize, maxTokens: cfg.MaxBatchedTokens, decode: benchDecode})
	cfg.Parallel, cfg.Backend, cfg.NumBlocks = l.parallel, l.backend, p.numBlocks()
	x := &pass{end: make(chan error, 1)}
	for range w.Size() {
		x.start = append(x.start, make(chan bool))
	}
	x.done.Add(w.Size())
	go func() {
		x.end <- w.Run(context.Background(), func(ctx context.Context, c *comm.Comm) error {
			m, err := New(ctx, c, f, cfg)
			if err != nil {
				return err
			}
			x.done.Done()
			pprof.SetGoroutineLabels(pprof.WithLabels(ctx, pprof.Labels("layout", l.name))) // for go tool pprof -tagfocus
			steps := p.steps[m.replica]
			for range x.start[c.Rank()] {
				for i := range steps {
					if _, err := m.Forward(comm.Stream{}, &steps[i].batch); err != nil {
						return err
					}
				}
				x.done.Done()
			}
			return m.Close(ctx)
		})
	}()
	x.done.Wait()
	return x
}

// run does one pass and returns the time it took on the clock and on the cores.
func (p *pass) run() (wall, cpu time.Duration) {
	p.done.Add(len(p.start))
	start, used := time.Now(), cpuTime()
	for _, c := range p.start {
		c <- true
	}
	p.done.Wait()
	return time.Since(start), cpuTime() - used
}

func (p *pass) close(t testing.TB) {
	for _, c := range p.start {
		close(c)
	}
	require.NoError(t, <-p.end)
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// flops counts the multiplications and additions of a prompt's matrix products, attention and one row of logits.
func flops(c *checkpoint.Config, tokens int) float64 {
	h, d, q, kv := c.HiddenSize, c.HeadDim, c.NumAttentionHeads, c.NumKeyValueHeads
	perToken := 2*h*(q+2*kv)*d + 2*q*d*h // projections
	perToken += 2*h*c.NumExperts + c.NumExpertsPerTok*6*h*c.MoEIntermediateSize
	perToken += 4 * (tokens + 1) / 2 * q * d // scores and outputs
	return float64(c.NumHiddenLayers)*float64(tokens)*float64(perToken) + float64(2*h*c.VocabSize)
}

// gemmRate measures the kernel on one core, in floating-point operations per second of core time.
func gemmRate() float64 {
	const n = 512
	a, c := make([]float32, n*n), make([]float32, n*n)
	w := gemm.Pack(a, n, n, n)
	best := 0.0
	for range 20 {
		used := cpuTime()
		for range 4 {
			w.Mul(c, n, a, n, n, false)
		}
		best = max(best, 4*2*n*n*n/(cpuTime()-used).Seconds())
	}
	return best
}

func median(x []float64) float64 {
	slices.Sort(x)
	return x[len(x)/2]
}

// BenchmarkForward runs eight prompts of 704 tokens and three more tokens of each on one rank and on eight, turn by turn, and reports for each layout: the
// best time on the clock relative to one rank's (x-tp1), the median ratio of core times (cpu-x-tp1), and the rate of one rank as a share of
// the matrix kernel's, per core second (kernel-share).
func BenchmarkForward(b *testing.B) {
	f, err := judgeFolder()
	require.NoError(b, err)
	var prompts []*golden
	for i := range benchPrompts {
		ids := judgeGoldens()[4].IDs // long-0
		prompts = append(prompts, &golden{IDs: ids[i*100 : i*100+benchTokens], Completion: ids[:benchDecode+1]})
	}
	work := benchPrompts * flops(f.Config, benchTokens) // without the decode steps, some 1 %
	for _, l := range append([]layout{one}, layouts...) {
		b.Run(l.name, func(b *testing.B) {
			rate := gemmRate()
			base := newPass(b, f, one, prompts, Config{MaxBatchedTokens: benchStep})
			eight := newPass(b, f, l, prompts, Config{MaxBatchedTokens: benchStep})
			base.run()
			eight.run()
			var one, all, cpu, share []float64
			for b.Loop() {
				w1, c1 := base.run()
				w8, c8 := eight.run()
				one, all = append(one, w1.Seconds()), append(all, w8.Seconds())
				cpu = append(cpu, c8.Seconds()/c1.Seconds())
				share = append(share, work/c1.Seconds()/rate)
			}
			b.ReportMetric(slices.Min(all)/slices.Min(one), "x-tp1")
			b.ReportMetric(median(cpu), "cpu-x-tp1")
			b.ReportMetric(median(share), "kernel-share")
			b.ReportMetric(rate/1e9, "kernel-gflops")
			base.close(b)
			eight.close(b)
			runtime.GC()
		})
	}
}
