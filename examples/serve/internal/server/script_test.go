package server

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/comm/local"
	"github.com/weftgo/weft/examples/internal/batch"
	"github.com/weftgo/weft/examples/internal/deploy"
	"github.com/weftgo/weft/examples/internal/engine"
	"github.com/weftgo/weft/moe"
)

// script is a model that says what it is told, whatever the prompt; then it ends its turn.
type script struct {
	vocab   int
	end     int32
	low     float32        // of what is not said
	prompts map[uint64]int // lengths
	logits  []float32

	mu  sync.Mutex
	ids []int32
}

func (m *script) Forward(_ comm.Stream, b *batch.Batch) ([]float32, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.logits = m.logits[:0]
	for i := range b.Seqs {
		s := &b.Seqs[i]
		end := s.Start + len(s.Tokens)
		if !s.Generation {
			m.prompts[s.ID] = end
		}
		for range s.NumLogits {
			row := slices.Repeat([]float32{m.low}, m.vocab)
			next := m.end
			if k := end - m.prompts[s.ID]; k < len(m.ids) {
				next = m.ids[k]
			}
			row[next] = 60
			m.logits = append(m.logits, row...)
		}
	}
	return m.logits, nil
}

// scripted is a server whose model is a script; say sets the script.
func scripted(t *testing.T, change ...func(*deploy.Config, *Config)) (r *rig, say func(text string) []int32) {
	r = start(t, "tp1", change...)
	m := &script{vocab: r.s.cfg.VocabSize, prompts: map[uint64]int{}}
	r.model = m
	world, err := local.Open(local.Config{Ranks: 1, Timeout: time.Minute})
	require.NoError(t, err)
	m.end, _ = r.s.cfg.Tokenizer.ID("<|im_end|>")
	c := r.d.Config
	e, err := engine.New(world, []engine.Model{m}, engine.Config{Layout: moe.Parallel{TP: 1, DP: 1}, VocabSize: m.vocab, EOS: []int32{m.end},
		MaxBatchedTokens: c.MaxBatchedTokens, MaxSeqs: c.MaxSeqs, MaxModelLen: c.MaxModelLen, BlockSize: c.BlockSize, NumBlocks: 1000})
	require.NoError(t, err)
	r.s.engine = e
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		require.NoError(t, e.Close(ctx))
		require.NoError(t, world.Close(ctx))
	})
	return r, func(text string) []int32 {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.ids = r.s.cfg.Tokenizer.Encode(text)
		return m.ids
	}
}
