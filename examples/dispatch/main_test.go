package main

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft"
	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/ep"
)

// The layer's output is plain arithmetic: the mean over a token's experts of (expert+1) times the token.
func TestLayerIsPlainArithmetic(t *testing.T) {
	for _, name := range []string{"agrs", "alltoall"} {
		for _, ranks := range []int{1, 3, 8} {
			s := settings{ranks: ranks, tokens: 7, hidden: 5, experts: 10, topK: 4}
			w, err := weft.Open(context.Background(), weft.Config{Ranks: ranks})
			require.NoError(t, err)
			require.NoError(t, w.Run(context.Background(), func(ctx context.Context, c *comm.Comm) error {
				ex, err := weft.NewExchanger(ctx, c, name, ep.Config{NumExperts: s.experts, TopK: s.topK, Hidden: s.hidden,
					MaxTokensPerRank: s.tokens, Layout: ep.Expanded, Alignment: 4})
				if err != nil {
					return err
				}
				batch := route(s, c.Rank())
				for i := range batch.x {
					batch.x[i] = float32(i % 9) // whole numbers, so that sums are exact
				}
				out := make([]float32, len(batch.x))
				if err := layer(ctx, ex, c.Rank(), out, batch); err != nil {
					return err
				}
				for i, got := range out {
					want := float32(0)
					for k := range s.topK {
						want += float32(batch.ids[i/s.hidden*s.topK+k]+1) * batch.x[i] / 4
					}
					if got != want {
						return fmt.Errorf("%s on %d ranks: rank %d value %d is %v, want %v", name, ranks, c.Rank(), i, got, want)
					}
				}
				return ex.Close(ctx)
			}))
			require.NoError(t, w.Close(context.Background()))
		}
	}
}

func TestRunPrintsEveryRank(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, run(context.Background(), &out, settings{ranks: 3, tokens: 4, hidden: 8, experts: 2, topK: 5, exchanger: "pplx"}))
	require.Equal(t, 3, strings.Count(out.String(), "\n"))
	require.Contains(t, out.String(), "rank 2 (alltoall): 4 tokens, 2.00 copies a token, 0 rows for its 0 experts")
	require.ErrorIs(t, run(context.Background(), &out, settings{ranks: 2, exchanger: "none such"}), comm.Invalid)
	for _, s := range []settings{{ranks: -1}, {}, {ranks: 2, tokens: -1}} {
		require.ErrorIs(t, run(context.Background(), &out, s), comm.Invalid)
	}
	out.Reset()
	require.NoError(t, run(context.Background(), &out, settings{ranks: 2, hidden: 8, experts: 4, topK: 2, exchanger: "auto"}))
	require.Contains(t, out.String(), "): 0 tokens, 0.00 copies a token")
}
