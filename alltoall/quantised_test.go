package alltoall_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/alltoall"
	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/comm/local"
	"github.com/weftgo/weft/dtype"
	"github.com/weftgo/weft/ep"
)

// TestQuantisedBytes counts what a dispatch moves between ranks: of each copy that leaves its rank the row's own bytes, its scales',
// and 8 for each choice (expert and weight). A bf16 row of the same values has twice the first and nothing of the second.
func TestQuantisedBytes(t *testing.T) {
	const ranks, tokens, hidden, topK = 4, 50, 256, 2
	for _, v := range []struct {
		cfg    ep.Config
		copied int64 // bytes of a copy
	}{
		{ep.Config{DType: dtype.BF16}, 2 * hidden},
		{ep.Config{DType: dtype.BF16, Quantised: true, Wire: dtype.F8E4M3, ScaleBytes: hidden / 128}, hidden + hidden/128},
		{ep.Config{DType: dtype.BF16, Quantised: true, Wire: dtype.U8, WireCols: hidden / 2, ScaleBytes: hidden / 16}, hidden/2 + hidden/16},
	} {
		cfg := v.cfg
		cfg.NumExperts, cfg.TopK, cfg.Hidden, cfg.MaxTokensPerRank = 8, topK, hidden, tokens
		t.Run(fmt.Sprintf("quantised %v, %d bytes", cfg.Quantised, v.copied), func(t *testing.T) {
			w, err := local.Open(local.Config{Ranks: ranks})
			require.NoError(t, err)
			var sent, cross atomic.Int64
			require.NoError(t, w.Run(context.Background(), func(ctx context.Context, c *comm.Comm) error {
				x, err := alltoall.New(ctx, c, cfg)
				if err != nil {
					return err
				}
				typ, cols := x.Config().Input()
				rows, err := comm.Alloc(c, typ, tokens, cols)
				if err != nil {
					return err
				}
				ids := make([]int32, tokens*topK)
				for i := range ids {
					ids[i] = int32((i*5 + i/7 + c.Rank()) % 8)
				}
				r := ep.Routing{IDs: comm.Of(ids, topK), Weights: comm.Of(make([]float32, tokens*topK), topK)}
				if cfg.ScaleBytes > 0 {
					r.Scales = comm.Of(make([]uint8, tokens*cfg.ScaleBytes), cfg.ScaleBytes)
				}
				before := c.Stats()[comm.AllToAllV].SentBytes
				got, err := x.Dispatch(comm.Stream{}, rows, r)
				if err != nil {
					return err
				}
				sent.Add(c.Stats()[comm.AllToAllV].SentBytes - before)
				cross.Add(x.Stats().NumCrossCopies)
				got.Release()
				return x.Close(ctx)
			}))
			require.NoError(t, w.Close(context.Background()))
			require.NotZero(t, cross.Load())
			require.Equal(t, cross.Load()*(v.copied+8*topK), sent.Load())
			t.Logf("%d copies to other ranks, %d bytes each", cross.Load(), sent.Load()/cross.Load())
		})
	}
}
