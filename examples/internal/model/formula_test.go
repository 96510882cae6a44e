package model

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/comm/local"
	"github.com/weftgo/weft/ep"
	"github.com/weftgo/weft/examples/internal/batch"
)

// Steps with tokens everywhere, on some replicas only, and nowhere.
func TestCountersEqualTheFormula(t *testing.T) {
	f, err := oddFolder()
	require.NoError(t, err)
	for _, l := range append(append([]layout{one}, layouts...), oddLayouts...) {
		if l.parallel.TP > f.Config.NumAttentionHeads {
			l.parallel.TP, l.name = 6, l.name+" as tp6"
		}
		t.Run(l.name, func(t *testing.T) {
			for _, most := range []int{23, 3, 0} {
				batches := make([]batch.Batch, l.parallel.DP)
				var rows []Rows
				for r := range batches {
					n := max(0, most-5*r)
					if n > 0 {
						s := batch.Seq{Blocks: []int32{1, 0}, NumLogits: min(n, r%3)}
						for i := range n {
							s.Tokens = append(s.Tokens, int32(19*i+r))
						}
						batches[r].Seqs = append(batches[r].Seqs, s)
					}
					rows = append(rows, RowsOf(&batches[r]))
				}
				got, copies := measure(t, l, batches)
				cfg := Config{Parallel: l.parallel, Backend: l.backend}
				require.Equal(t, fmt.Sprint(cfg.Formula(f.Config, rows, copies)), fmt.Sprint(got), "%v", rows)
			}
		})
	}
}

// measure runs one step on the odd model and returns its traffic and the copies that crossed ranks.
func measure(t *testing.T, l layout, batches []batch.Batch) (Traffic, int64) {
	f, err := oddFolder()
	require.NoError(t, err)
	w, err := local.Open(local.Config{Ranks: l.parallel.Size(), Timeout: 20 * time.Second})
	require.NoError(t, err)
	stats := make([]comm.Stats, w.Size())
	copies := make([]int64, w.Size())
	require.NoError(t, w.Run(context.Background(), func(ctx context.Context, c *comm.Comm) error {
		cfg := Config{Parallel: l.parallel, Backend: l.backend, BlockSize: 16, MaxBatchedTokens: 32, NumBlocks: 2}
		m, err := New(ctx, c, f, cfg)
		if err != nil {
			return err
		}
		before := m.Stats()
		if _, err := m.Forward(comm.Stream{}, &batches[m.replica]); err != nil {
			return err
		}
		stats[c.Rank()] = m.Stats().Sub(before)
		if x, ok := m.Exchanger().(ep.Meter); ok {
			copies[c.Rank()] = x.Stats().NumCrossCopies
		}
		return m.Close(ctx)
	}))
	require.NoError(t, w.Close(context.Background()))
	total := int64(0)
	for _, n := range copies {
		total += n
	}
	return TrafficOf(stats...), total
}
