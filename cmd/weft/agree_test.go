package main

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/dtype"
	"github.com/weftgo/weft/ep"
	"github.com/weftgo/weft/moe"
	"github.com/weftgo/weft/plan"
	"github.com/weftgo/weft/routing"
)

// TestGateAgrees: the planner's gate and names are those of the layer that runs.
func TestGateAgrees(t *testing.T) {
	for _, tp := range []int{1, 2, 8} {
		for _, dp := range []int{1, 2, 8} {
			for _, whole := range []bool{false, true} {
				runs := moe.Parallel{TP: tp, DP: dp, EP: whole}
				l, err := plan.ParseLayout(runs.String())
				require.NoError(t, err)
				require.Equal(t, runs.UseExchange(), l.UseExchange(), runs)
				require.Equal(t, runs.Size(), l.GPUs())
				require.Equal(t, []any{tp, dp, whole}, []any{l.TP, l.DP, l.EP})
			}
		}
	}
}

// TestCopiesAgree: the planner's fanouts are the copies that a routing plan of random tokens makes.
func TestCopiesAgree(t *testing.T) {
	const tokens, experts, topK = 20000, 128, 8
	r := rand.New(rand.NewPCG(1, 2))
	var ids []int32
	for range tokens {
		for _, e := range r.Perm(experts)[:topK] {
			ids = append(ids, int32(e))
		}
	}
	for _, size := range []int{1, 2, 4, 8, 16, 32} {
		p, err := routing.NewPlan(routing.Placement{NumExperts: experts, Size: size}, ids, topK)
		require.NoError(t, err)
		copies := float64(len(p.Tokens)) / tokens
		require.InEpsilon(t, plan.FanoutDistinct(size, experts, topK), copies, 0.005, "%d ranks", size)
		wire := float64(len(p.Tokens)-p.Counts[0]) / tokens
		require.InDelta(t, plan.AllToAllFactor(size, experts, topK, "distinct-wire")/2, wire, 0.03, "%d ranks", size)
	}
}

// TestBuffersAgree: what the planner sets aside for an exchange is what an exchanger shares with its peers at worst.
func TestBuffersAgree(t *testing.T) {
	m, err := plan.Preset("qwen3-30b-a3b")
	require.NoError(t, err)
	c, err := plan.ClusterPreset("8xh200", 0)
	require.NoError(t, err)
	l, err := plan.ParseLayout("dp8+ep8:alltoall")
	require.NoError(t, err)
	var planned int64
	for _, term := range plan.MemoryOf(m, c, l, 512, 100).Terms {
		if term.Name == "exchange buffers" {
			planned = term.Bytes
		}
	}
	symmetric, private := ep.Config{NumExperts: m.Experts, TopK: m.TopK, Hidden: m.Hidden, MaxTokensPerRank: 512, DType: dtype.BF16}.Bytes(8)
	t.Logf("planned %.1f MiB; an exchanger's bound is %.1f MiB symmetric and %.1f MiB private", float64(planned)/mib,
		float64(symmetric)/mib, float64(private)/mib)
	require.InEpsilon(t, symmetric, planned, 0.001)
}
