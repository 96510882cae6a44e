package eptest

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/dtype"
	"github.com/weftgo/weft/ep"
	"github.com/weftgo/weft/internal/kernels/exchange"
	"github.com/weftgo/weft/routing"
)

// TestBrief runs every way through a strategy's kernels once or twice in small sizes: for tools that make programs a
// hundred times slower. The strategy's own cases follow.
func TestBrief(t *testing.T, create New, open Open, more ...ep.Config) {
	on := newRig(t, create, open)
	exchange.Poison.Store(true)
	t.Cleanup(func() { exchange.Poison.Store(false) })
	const ranks = 2
	for _, layout := range []ep.Layout{ep.Rows, ep.Expanded} {
		for _, output := range []ep.Output{ep.ExpertRows, ep.PartialRows} {
			for _, wire := range []dtype.DType{dtype.F32, dtype.F8E4M3} {
				cfg := ep.Config{NumExperts: 5, TopK: 3, Hidden: 130, MaxTokensPerRank: 40, Wire: wire, Layout: layout, Output: output, Alignment: 4}
				t.Run(fmt.Sprintf("%v %v %v", layout, output, wire), func(t *testing.T) {
					full := cfg.WithDefaults(ranks)
					steps(t, on, ranks, cfg, options{gap: 3, numBias: 2}, NewStep("few", full, 1, []int{3, 0}, dirty),
						NewStep("many", full, 2, []int{40, 33}, dirty))
				})
			}
		}
	}
	t.Run("bulk copies", func(t *testing.T) {
		cfg := ep.Config{NumExperts: 4, TopK: 2, Hidden: 64, MaxTokensPerRank: 300, DType: dtype.BF16}
		steps(t, on, ranks, cfg, options{}, NewStep("", cfg.WithDefaults(ranks), 3, even(ranks, 300), distinct))
	})
	t.Run("quantised, an expert is missing", func(t *testing.T) {
		cfg := ep.Config{NumExperts: 5, TopK: 3, Hidden: 14, MaxTokensPerRank: 40, Quantised: true, Wire: dtype.U8, WireCols: 7, ScaleBytes: 3,
			Placement: routing.Placement{NumExperts: 5, Size: ranks, Physical: []int32{0, 1, 4, 3, 1}, AllowMissing: true}}
		require.NoError(t, on.world(t, ranks).Run(t.Context(), func(ctx context.Context, c *comm.Comm) error {
			x, err := on.create(ctx, c, cfg)
			if err != nil {
				return err
			}
			for seed, tokens := range [][]int{{3, 0}, {40, 33}} {
				s := NewStep("quantised", x.Config(), uint64(seed), tokens, dirty)
				if err := newRaw(x.Config(), s, uint64(seed)).run(c, x, s, 1); err != nil {
					return err
				}
			}
			return x.Close(ctx)
		}))
	})
	for _, cfg := range more {
		t.Run(fmt.Sprintf("invariant %v", cfg.RankInvariant), func(t *testing.T) {
			steps(t, on, ranks, cfg, options{}, NewStep("", cfg.WithDefaults(ranks), 4, even(ranks, cfg.MaxTokensPerRank), distinct))
		})
	}
}

// BriefInvariant is a case of TestBrief for strategies that return expert rows.
var BriefInvariant = ep.Config{NumExperts: 4, TopK: 2, Hidden: 16, MaxTokensPerRank: 8, RankInvariant: true}
