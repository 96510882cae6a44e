package twolevel_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/ep"
)

// Ranks that hear of a refusal at the first of two steps may leave, and end the world, before the rank that refused has come
// through the second: Run's error says all the same why it refused. Without that it did not in a quarter to a half of the
// worlds.
func TestWhyRefused(t *testing.T) {
	const numNodes, ranks = 2, 2
	for i := range 40 {
		refuser := i % (numNodes * ranks)
		for what, want := range map[string]string{"dispatch": "3 tokens > MaxTokensPerRank 2", "new": "Hidden -5"} {
			w := open(t, numNodes, ranks, 20*time.Second)
			err := w.Run(context.Background(), func(ctx context.Context, c *comm.Comm) error {
				cfg, tokens := ep.Config{NumExperts: 4, TopK: 1, Hidden: 4, MaxTokensPerRank: 2}, 2
				if c.WorldRank() == refuser {
					tokens = 3
					if what == "new" {
						cfg.Hidden = -5
					}
				}
				x, err := create(ctx, c, cfg)
				if err != nil {
					return err
				}
				_, err = x.Dispatch(comm.Stream{}, comm.Of(make([]float32, 4*tokens), 4),
					ep.Routing{IDs: comm.Of(make([]int32, tokens), 1), Weights: comm.Of(make([]float32, tokens), 1)})
				return err
			})
			name := fmt.Sprintf("%s, world %d", what, i)
			require.ErrorIs(t, err, comm.Invalid, name)
			require.ErrorContains(t, err, want, name)
			require.Equal(t, refuser, comm.Blamed(err), name)
			_ = w.Close(context.Background())
		}
	}
}
