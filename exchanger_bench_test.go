package weft_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft"
	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/comm/local"
	"github.com/weftgo/weft/dtype"
	"github.com/weftgo/weft/ep"
)

// BenchmarkExchange times a dispatch and a combine of 8 ranks, without experts in between.
func BenchmarkExchange(b *testing.B) {
	const ranks = 8
	for _, dt := range []dtype.DType{dtype.F32, dtype.BF16} {
		for _, tokens := range []int{1, 16, 256} {
			for _, name := range []string{"agrs", "alltoall"} {
				b.Run(fmt.Sprintf("%v/%d tokens/%s", dt, tokens, name), func(b *testing.B) {
					cfg := ep.Config{NumExperts: 32, TopK: 4, Hidden: 256, MaxTokensPerRank: tokens, DType: dt}
					w, err := local.Open(local.Config{Ranks: ranks})
					require.NoError(b, err)
					b.ReportAllocs()
					require.NoError(b, w.Run(context.Background(), func(ctx context.Context, c *comm.Comm) error {
						return benchRank(ctx, b, c, name, cfg)
					}))
					require.NoError(b, w.Close(context.Background()))
					b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(ranks*tokens), "ns/token")
				})
			}
		}
	}
}

func benchRank(ctx context.Context, b *testing.B, c *comm.Comm, name string, cfg ep.Config) error {
	x, err := weft.NewExchanger(ctx, c, name, cfg)
	if err != nil {
		return err
	}
	rng := rand.New(rand.NewPCG(1, uint64(c.Rank())))
	var ids []int32
	for range cfg.MaxTokensPerRank {
		for _, e := range rng.Perm(cfg.NumExperts)[:cfg.TopK] {
			ids = append(ids, int32(e))
		}
	}
	in := typed(make([]float32, cfg.MaxTokensPerRank*cfg.Hidden), cfg.Hidden, cfg.DType)
	route := ep.Routing{IDs: comm.Of(ids, cfg.TopK), Weights: comm.Of(make([]float32, len(ids)), cfg.TopK)}
	for i := range b.N + 1 {
		if i == 1 {
			if err := c.Barrier(comm.Stream{}); err != nil {
				return err
			}
			if c.Rank() == 0 {
				b.ResetTimer()
			}
		}
		r, err := x.Dispatch(comm.Stream{}, in, route)
		if err != nil {
			return err
		}
		for s := range r.Y.Rows() {
			clear(r.Y.RowBytes(s))
		}
		if err := x.Combine(comm.Stream{}, in, r.Y, r); err != nil {
			return err
		}
	}
	return x.Close(ctx)
}
