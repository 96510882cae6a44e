package moe

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/routing"
)

// TestChoice pins what is chosen over (tp, dp, ep, shared experts, backend).
func TestChoice(t *testing.T) {
	type row struct {
		tp, dp    int
		ep        bool
		shared    int
		device    comm.Kind
		exchange  bool
		reduction reduction
		sharing   sharing
		fail      string
	}
	for _, r := range []row{
		{1, 1, false, 0, comm.CPU, false, allReduce, noShared, ""},
		{1, 1, true, 0, comm.CPU, false, allReduce, noShared, ""},
		{1, 1, true, 8, comm.CPU, false, allReduce, sharedSliced, ""},
		{8, 1, false, 0, comm.CPU, false, allReduce, noShared, ""},
		{8, 1, false, 8, comm.CPU, false, allReduce, sharedSliced, ""},
		{8, 1, true, 0, comm.CPU, false, allReduce, noShared, ""},
		{8, 1, true, 8, comm.CPU, false, allReduce, sharedSliced, ""},
		{4, 2, true, 0, comm.CPU, true, combine, noShared, ""},
		{4, 2, true, 8, comm.CPU, true, combine, sharedWhole, ""},
		{2, 4, true, 8, comm.CPU, true, combine, sharedWhole, ""},
		{1, 8, true, 0, comm.CPU, true, combine, noShared, ""},
		{1, 8, true, 8, comm.CPU, true, combine, sharedWhole, ""},
		{1, 8, false, 0, comm.CPU, false, reduceScatterV, noShared, ""},
		{1, 8, false, 8, comm.CPU, false, reduceScatterV, sharedSliced, ""},
		{4, 2, false, 8, comm.CPU, false, reduceScatterV, sharedSliced, ""},
		{1, 8, true, 0, comm.CUDA, false, 0, 0, "no experts kernel"},
		{8, 1, false, 0, comm.CUDA, false, 0, 0, "no experts kernel"},
	} {
		cfg := Config{Hidden: 8, NumExperts: 8, TopK: 2, Intermediate: 16, SharedIntermediate: r.shared, MaxTokens: 4,
			Parallel: Parallel{TP: r.tp, DP: r.dp, EP: r.ep}}
		c, err := choose(cfg, r.tp*r.dp, r.device)
		if r.fail != "" {
			require.ErrorContains(t, err, r.fail)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, choice{r.exchange, r.ep, r.reduction, r.sharing, c.why}, c, "%+v", r)
		require.NotEmpty(t, c.why)
		require.Equal(t, r.exchange, cfg.Parallel.UseExchange())
	}
}

func TestConfigRefusals(t *testing.T) {
	good := Config{Hidden: 8, NumExperts: 8, TopK: 2, Intermediate: 16, MaxTokens: 4, Parallel: Parallel{TP: 2, DP: 2, EP: true}}
	require.NoError(t, good.Validate())
	for _, c := range []struct {
		change func(c *Config)
		want   string
	}{
		{func(c *Config) { c.Hidden = 0 }, "hidden 0"},
		{func(c *Config) { c.TopK = 9 }, "top-9 of 8"},
		{func(c *Config) { c.TopK = 0 }, "top-0"},
		{func(c *Config) { c.MaxTokens = 0 }, "MaxTokens 0"},
		{func(c *Config) { c.SharedIntermediate = -1 }, "SharedIntermediate -1"},
		{func(c *Config) { c.Scoring = 7 }, "scoring 7"},
		{func(c *Config) { c.TopKMethod = 7 }, "method 7"},
		{func(c *Config) { c.Parallel.DP = 0 }, "dp 0"},
		{func(c *Config) { c.NumGroups, c.TopKGroups = 3, 1 }, "8 experts in 3 groups"},
		{func(c *Config) { c.NumGroups, c.TopKGroups = 2, 3 }, "best 3 of 2"},
		{func(c *Config) { c.NumGroups, c.TopKGroups = 8, 1 }, "top-2 of the 1 experts"},
		{func(c *Config) { c.RankInvariant = true; c.Parallel.DP = 1 }, "RankInvariant with tp2+ep2"},
		{func(c *Config) { c.RankInvariant = true; c.Parallel.EP = false }, "RankInvariant with dp2tp2"},
		{func(c *Config) { c.Placement = routing.Placement{NumExperts: 8, Size: 3} }, "on 3 ranks, layer of 8 experts on 4"},
		{func(c *Config) {
			c.Placement = routing.Placement{NumExperts: 8, Size: 4}
			c.Parallel.EP = false
		}, "sliced over all ranks"},
	} {
		cfg := good
		c.change(&cfg)
		require.ErrorContains(t, cfg.Validate(), c.want)
	}
	_, err := choose(good, 3, comm.CPU)
	require.ErrorContains(t, err, "are 4 ranks, the group has 3")
}

func TestShare(t *testing.T) {
	for _, c := range [][3]int{{80, 8, 10}, {10, 8, 2}, {3, 8, 1}, {0, 4, 0}, {7, 1, 7}} {
		at := 0
		for r := range c[1] {
			lo, hi := Share(c[0], c[1], r)
			require.Equal(t, at, lo)
			require.GreaterOrEqual(t, hi, lo)
			if r == 0 {
				require.Equal(t, c[2], hi)
			} else {
				a, b := Share(c[0], c[1], r-1)
				require.LessOrEqual(t, hi-lo, b-a, "first ranks have more")
			}
			at = hi
		}
		require.Equal(t, c[0], at)
	}
}
