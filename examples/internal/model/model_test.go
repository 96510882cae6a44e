package model

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/comm/local"
	"github.com/weftgo/weft/examples/internal/bundled"
	"github.com/weftgo/weft/examples/internal/checkpoint"
	"github.com/weftgo/weft/internal/race"
	"github.com/weftgo/weft/moe"
)

var judgeFolder = sync.OnceValues(func() (*checkpoint.Folder, error) { return checkpoint.OpenFS(bundled.FS(), bundled.Name) })
var oddFolder = sync.OnceValues(func() (*checkpoint.Folder, error) { return checkpoint.Open("../checkpoint/testdata/odd-a") })

// layout is how a test spreads a model.
type layout struct {
	name     string
	parallel moe.Parallel
	backend  string
}

// runPlan runs p on a world of the layout and hands every step's logits of every replica's first rank to check. models, when
// not nil, sees each model before its first step.
func runPlan(t testing.TB, f *checkpoint.Folder, l layout, cfg Config, p *plan, prepare func(*Model), check func(pl *planned, logits []float32)) {
	t.Helper()
	w, err := local.Open(local.Config{Ranks: l.parallel.Size(), Timeout: 20 * time.Second})
	require.NoError(t, err)
	runPlanOn(t, w, f, l, cfg, p, prepare, check)
}

// runPlanOn is runPlan on a world that is there.
func runPlanOn(t testing.TB, w *comm.World, f *checkpoint.Folder, l layout, cfg Config, p *plan, prepare func(*Model), check func(pl *planned, logits []float32)) {
	t.Helper()
	cfg.Parallel, cfg.Backend = l.parallel, l.backend
	cfg.NumBlocks = max(cfg.NumBlocks, p.numBlocks())
	err := w.Run(context.Background(), func(ctx context.Context, c *comm.Comm) error {
		m, err := New(ctx, c, f, cfg)
		if err != nil {
			return err
		}
		if prepare != nil {
			prepare(m)
		}
		steps := p.steps[c.Rank()/l.parallel.TP]
		for i := range steps {
			logits, err := m.Forward(comm.Stream{}, &steps[i].batch)
			if err != nil {
				return err
			}
			if check != nil && c.Rank()%l.parallel.TP == 0 {
				check(&steps[i], logits)
			}
		}
		return nil
	})
	require.NoError(t, err)
}

func checkRows(t testing.TB, vocab int) func(*planned, []float32) {
	return func(p *planned, logits []float32) {
		require.Len(t, logits, len(p.rows)*vocab)
		for i, r := range p.rows {
			r.prompt.checkRow(t, r.at, logits[i*vocab:(i+1)*vocab])
		}
	}
}

var one = layout{"tp1", moe.Parallel{TP: 1, DP: 1}, ""}

func TestOddOnOneRank(t *testing.T) {
	f, err := oddFolder()
	require.NoError(t, err)
	p := makePlan(oddGoldens(), planOptions{replicas: 1, blockSize: 16, maxTokens: 64, echo: true, decode: 12})
	runPlan(t, f, one, Config{BlockSize: 16, MaxBatchedTokens: 64}, p, nil, checkRows(t, f.Config.VocabSize))
}

func TestJudgeOnOneRank(t *testing.T) {
	f, err := judgeFolder()
	require.NoError(t, err)
	prompts := judgeGoldens()
	if testing.Short() {
		prompts = short(prompts)
	}
	p := makePlan(prompts, planOptions{replicas: 1, blockSize: 32, maxTokens: 1024, echo: true, decode: 8})
	runPlan(t, f, one, Config{BlockSize: 32, MaxBatchedTokens: 1024}, p, nil, checkRows(t, f.Config.VocabSize))
}

// short keeps the prompts below 300 tokens; under the race detector only one of the longer ones.
func short(all []*golden) (out []*golden) {
	limit := 300
	if race.Enabled {
		limit = 250
	}
	for _, g := range all {
		if len(g.IDs) < limit {
			out = append(out, g)
		}
	}
	return out
}
