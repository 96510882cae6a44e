package engine

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/comm/local"
	"github.com/weftgo/weft/examples/internal/batch"
	"github.com/weftgo/weft/examples/internal/batch/batchtest"
	"github.com/weftgo/weft/moe"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const vocab = 13

// rankModel is the stand-in model with what a real one has beside it: an exchange with all ranks in every step.
type rankModel struct {
	*batchtest.Model
	c      *comm.Comm
	before func(b *batch.Batch) error // if not nil, called first
	after  func([]float32) []float32  // if not nil, may spoil the logits
	one    []int64
	all    []int64
	names  map[string]int // of steps
	meets  atomic.Bool    // in its collective
}

// InCollective is of Waiter.
func (m *rankModel) InCollective() bool { return m.meets.Load() }

func (m *rankModel) Forward(s comm.Stream, b *batch.Batch) ([]float32, error) {
	if m.names != nil {
		m.names[b.Name()]++
	}
	if m.before != nil {
		if err := m.before(b); err != nil {
			return nil, err
		}
	}
	m.one[0] = int64(b.NumTokens())
	m.meets.Store(true)
	err := m.c.AllGather(s, comm.Of(m.all, 1), comm.Of(m.one, 1))
	m.meets.Store(false)
	if err != nil {
		return nil, err
	}
	logits, err := m.Model.Forward(s, b)
	if m.after != nil {
		logits = m.after(logits)
	}
	return logits, err
}

type layout struct {
	name   string
	tp, dp int
}

var layouts = []layout{{"tp1", 1, 1}, {"tp2", 2, 1}, {"dp2tp2", 2, 2}, {"dp4", 1, 4}, {"dp8", 1, 8}}

// rig is an engine on a world of stand-in models.
type rig struct {
	*Engine
	world  *comm.World
	models []*rankModel
}

func config(l layout) Config {
	return Config{Layout: moe.Parallel{TP: l.tp, DP: l.dp, EP: true}, VocabSize: vocab, EOS: []int32{0},
		MaxBatchedTokens: 16, MaxSeqs: 4, MaxModelLen: 64, BlockSize: 4, NumBlocks: 24, StepTimeout: 20 * time.Second}
}

func start(t require.TestingT, cfg Config, timeout time.Duration, change ...func(rank int, m *rankModel)) *rig {
	n := cfg.Layout.Size()
	w, err := local.Open(local.Config{Ranks: n, Timeout: timeout})
	require.NoError(t, err)
	r := &rig{world: w}
	models := make([]Model, n)
	for i, c := range w.Local() {
		m := &rankModel{Model: batchtest.New(cfg.VocabSize, cfg.NumBlocks, cfg.BlockSize), c: c,
			one: make([]int64, 1), all: make([]int64, n), names: map[string]int{}}
		for _, f := range change {
			f(i, m)
		}
		models[i] = m
		r.models = append(r.models, m)
	}
	r.Engine, err = New(w, models, cfg)
	require.NoError(t, err)
	return r
}

// close ends the engine in good order and checks that nothing is left over.
func (r *rig) close(t require.TestingT) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	require.NoError(t, r.Close(ctx))
	require.NoError(t, r.world.Err())
	for i, rep := range r.Stats().Replicas {
		require.Zero(t, rep.KVUsed, "replica %d", i)
		require.Zero(t, rep.Running+rep.Waiting, "replica %d", i)
		pool := r.replicas[i].sched.Pool()
		require.NoError(t, pool.Check())
		require.Equal(t, pool.Total(), pool.Free()+pool.Cached())
		require.Zero(t, r.replicas[i].tokens.Load()+r.replicas[i].requests.Load(), "replica %d: load", i)
	}
	calls := r.world.Local()[0].Stats()
	for rank, c := range r.world.Local() {
		for k, n := range c.Stats() {
			require.Equal(t, calls[k].Calls, n.Calls, "%v on rank %d", comm.OpKind(k), rank)
		}
	}
	require.NoError(t, r.world.Close(ctx))
}

// want is what greedy decoding must give: no batch, no cache, no ranks.
func want(req *Request, cfg *Config) ([]int32, FinishReason) {
	var ids []int32
	prefix := slices.Clone(req.IDs)
	stops := req.stops(cfg.EOS)
	for len(ids) < req.MaxTokens && len(prefix) < cfg.MaxModelLen {
		z := batchtest.Logits(prefix, cfg.VocabSize)
		best := -1
		for i, v := range z {
			if len(ids) < req.MinTokens && slices.Contains(stops, int32(i)) {
				continue
			}
			if best < 0 || v > z[best] {
				best = i
			}
		}
		ids, prefix = append(ids, int32(best)), append(prefix, int32(best))
		if slices.Contains(stops, int32(best)) {
			return ids, FinishStop
		}
	}
	return ids, FinishLength
}

func prompt(seed, n int) []int32 {
	p := make([]int32, n)
	for i := range p {
		p[i] = int32(((seed*7+i*i+i*seed)%vocab + vocab) % vocab)
	}
	return p
}

// do submits a request and waits for its output.
func (r *rig) do(t testing.TB, req Request) Output {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	h, err := r.Submit(ctx, req)
	require.NoError(t, err)
	out, err := h.Wait(ctx)
	require.NoError(t, err)
	return out
}
