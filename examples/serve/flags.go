package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/weftgo/weft"
	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/examples/internal/checkpoint"
	"github.com/weftgo/weft/examples/internal/deploy"
	"github.com/weftgo/weft/examples/internal/engine"
	"github.com/weftgo/weft/examples/internal/layout"
	"github.com/weftgo/weft/examples/internal/model"
	"github.com/weftgo/weft/moe"
)

type flags struct {
	Model      string   `help:"Model folder; the bundled model if empty." type:"path"`
	ServedName []string `name:"served-model-name" help:"Names under which clients ask for the model; answers have the first."`
	Host       string   `help:"Address to listen on." default:"127.0.0.1"`
	Port       int      `help:"Port to listen on; 0 takes a free one." default:"8000"`
	APIKey     string   `name:"api-key" help:"Key that clients must send." env:"VLLM_API_KEY"`

	TP      int    `name:"tensor-parallel-size" short:"t" help:"Ranks that share a replica's attention." default:"1"`
	DP      int    `name:"data-parallel-size" help:"Replicas of attention." default:"1"`
	EP      bool   `name:"enable-expert-parallel" help:"Whole experts, spread over all ranks; else every expert is sliced over all."`
	Backend string `name:"all2all-backend" help:"How ranks exchange tokens with dp > 1 and experts spread: agrs, alltoall, auto, or one of vLLM's names." default:"auto"`
	Policy  string `name:"data-parallel-policy" help:"Which replica gets a request: round-robin, least-tokens, prefix-aware." enum:"round-robin,least-tokens,prefix-aware" default:"prefix-aware"`

	MaxBatchedTokens int     `name:"max-num-batched-tokens" help:"Tokens of one step of all ranks together." default:"4096"`
	MaxSeqs          int     `name:"max-num-seqs" help:"Requests that run at once on one replica." default:"64"`
	MaxModelLen      int     `name:"max-model-len" help:"Tokens of one request, prompt and answer; 0 means what the model allows."`
	BlockSize        int     `help:"Positions of one block of the key/value cache, a multiple of 16." default:"64"`
	CacheTokens      int     `name:"kv-cache-tokens" help:"Positions of one replica's key/value cache; 0 means four steps, and at least one longest request."`
	PrefixCaching    bool    `name:"enable-prefix-caching" help:"Requests with the same beginning share its keys and values." default:"true" negatable:""`
	MaxMemory        float64 `name:"max-memory" help:"Memory for all ranks together in GiB; 0 means nine tenths of what is free."`

	Device  string `help:"Where the ranks run: cpu, cuda, auto." enum:"cpu,cuda,auto" default:"auto"`
	DType   string `name:"dtype" help:"Type of the arithmetic: auto or float32." default:"auto"`
	IDsOnly bool   `name:"skip-tokenizer-init" help:"Load no tokenizer: ids in, ids out."`

	MaxLogprobs  int           `name:"max-logprobs" help:"The most logprobs that a request may ask for, up to 20." default:"20"`
	MaxQueued    int           `name:"max-num-queued" help:"Requests that may wait beyond those that run; more get 503." default:"1024"`
	DrainTimeout time.Duration `name:"drain-timeout" help:"How long requests may go on after SIGTERM." default:"30s"`
	Timeout      time.Duration `name:"collective-timeout" help:"The longest that a rank waits for another before the world is declared dead." default:"60s"`
	StepTimeout  time.Duration `name:"step-timeout" help:"The longest step of one rank before it counts as stuck." default:"5m"`
	LogLevel     string        `name:"log-level" help:"debug, info, warn or error." enum:"debug,info,warn,error" default:"info"`
}

// layout reads the flags that say how the model is spread. The names of exchangers are weft.NewExchanger's.
func (f *flags) layout(m *checkpoint.Config) (layout.Layout, error) {
	l := layout.Layout{Parallel: moe.Parallel{TP: f.TP, DP: f.DP, EP: f.EP}}
	if f.TP < 1 || f.DP < 1 {
		return l, fmt.Errorf("--tensor-parallel-size %d, --data-parallel-size %d: each must be at least 1", f.TP, f.DP)
	}
	strategy, err := weft.ExchangerStrategy(f.Backend)
	switch {
	case err != nil:
		return l, fmt.Errorf("--all2all-backend: %w", err)
	case !l.UseExchange() && strategy != "auto":
		return l, fmt.Errorf("--all2all-backend %s has no use: tokens are exchanged only with --data-parallel-size > 1 and --enable-expert-parallel", f.Backend)
	case !l.UseExchange():
	case strategy == "auto" && m.NumExperts > 0:
		parts := model.Config{Parallel: l.Parallel, MaxBatchedTokens: max(1, f.MaxBatchedTokens/f.DP)}
		l.Backend = weft.ChooseExchanger(comm.CPU, l.Size(), parts.Exchange(m))
	case strategy != "auto":
		l.Backend = strategy
	}
	return layout.Parse(l.String())
}

// check refuses what this server cannot do, before anything is opened.
func (f *flags) check() error {
	switch {
	case f.Device == "cuda":
		return errors.New("--device cuda: the server runs on the CPU only so far; use cpu or auto")
	case f.DType != "auto" && f.DType != "float32" && f.DType != "float":
		return fmt.Errorf("--dtype %s: arithmetic on the CPU is float32 whatever the type of the weights; use auto or float32", f.DType)
	case f.Port < 0 || f.Port > 65535:
		return fmt.Errorf("--port %d is not in [0, 65535]", f.Port)
	case f.MaxBatchedTokens < f.DP || f.MaxBatchedTokens > maxTokens:
		return fmt.Errorf("--max-num-batched-tokens %d is not in [%d, %d]: at least one for each replica", f.MaxBatchedTokens, f.DP, maxTokens)
	case f.MaxSeqs < 1 || f.MaxSeqs > maxTokens:
		return fmt.Errorf("--max-num-seqs %d is not in [1, %d]", f.MaxSeqs, maxTokens)
	case f.MaxModelLen < 0 || f.CacheTokens < 0 || f.CacheTokens > maxTokens || f.MaxMemory < 0 || f.MaxQueued < 0:
		return errors.New("--max-model-len, --kv-cache-tokens, --max-memory and --max-num-queued cannot be negative")
	case f.MaxLogprobs < 1 || f.MaxLogprobs > engine.MaxTopLogprobs:
		return fmt.Errorf("--max-logprobs %d is not in [1, %d]", f.MaxLogprobs, engine.MaxTopLogprobs)
	case f.BlockSize < 16 || f.BlockSize%16 != 0 || f.BlockSize > 1<<16:
		return fmt.Errorf("--block-size %d is not a multiple of 16 from 16 to %d", f.BlockSize, 1<<16)
	case f.Timeout <= 0 || f.StepTimeout <= 0 || f.DrainTimeout < 0:
		return fmt.Errorf("--collective-timeout %v, --step-timeout %v, --drain-timeout %v: times must be positive", f.Timeout, f.StepTimeout, f.DrainTimeout)
	}
	return nil
}

// maxTokens keeps sizes where their products fit 64 bits.
const maxTokens = 1 << 26

// deployment completes the configuration and holds it against the model and the memory.
func (f *flags) deployment(l layout.Layout, m *checkpoint.Config, available int64) (deploy.Config, error) {
	c := deploy.Config{Layout: l, MaxBatchedTokens: f.MaxBatchedTokens, MaxSeqs: f.MaxSeqs, MaxModelLen: f.MaxModelLen,
		CacheTokens: f.CacheTokens, BlockSize: f.BlockSize, PrefixCaching: f.PrefixCaching, WaitForPrefix: f.PrefixCaching, Timeout: f.Timeout, StepTimeout: f.StepTimeout}
	switch {
	case c.MaxModelLen == 0:
		c.MaxModelLen = m.MaxPositionEmbeddings
	case c.MaxModelLen > m.MaxPositionEmbeddings:
		return c, fmt.Errorf("--max-model-len %d > %d, which is the most that this model allows", c.MaxModelLen, m.MaxPositionEmbeddings)
	}
	if c.CacheTokens != 0 && c.CacheTokens < c.MaxModelLen {
		return c, fmt.Errorf("--kv-cache-tokens %d < --max-model-len %d: a longest request would never run", c.CacheTokens, c.MaxModelLen)
	}
	switch f.Policy {
	case "least-tokens":
		c.Policy = engine.LeastTokens()
	case "prefix-aware":
		c.Policy = deploy.PrefixAware(l, c.MaxBatchedTokens)
	}
	return c, fit(&c, m, available)
}
