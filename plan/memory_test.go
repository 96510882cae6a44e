package plan

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func h200(t testing.TB, gpus int) Cluster {
	c, err := ClusterPreset("h200", gpus)
	require.NoError(t, err)
	return c
}

// TestKVRatio: what data parallelism gains in cache, at equal free memory and after its extra weights.
func TestKVRatio(t *testing.T) {
	m := preset(t, "qwen3-235b-a22b")
	c := h200(t, 8)
	c.RuntimeBytes = 0
	tp := MemoryOf(m, c, layout(t, "tp8"), 8, 4704)
	dp := MemoryOf(m, c, layout(t, "dp8+ep8:agrs"), 1, 4704)
	require.Equal(t, "118", fmt.Sprintf("%.0f", gib(c.UsableBytes())))
	require.Equal(t, "1.6", fmt.Sprintf("%.1f", float64(dp.KVTokensAll)/float64(tp.KVTokensAll)))
	equal := 8 * float64(tp.KVPerToken) / float64(dp.KVPerToken)
	require.Equal(t, 2.0, equal)
}

// TestRefusal: a layout that cannot fit says so, with the numbers, and the budget it names is the largest that fits.
func TestRefusal(t *testing.T) {
	m := preset(t, "qwen3-235b-a22b")
	c := h200(t, 8)
	for _, s := range []string{"tp8", "tp8+ep8", "dp8+ep8:agrs", "dp8+ep8:alltoall", "dp2tp4+ep8:agrs"} {
		l := layout(t, s)
		big := MemoryOf(m, c, l, 1<<23, 4704)
		require.False(t, big.Fits, s)
		require.Contains(t, big.Refusal, fmt.Sprintf("lower the budget to at most %d tokens", big.MaxBudget))
		require.True(t, MemoryOf(m, c, l, big.MaxBudget, 4704).Fits, s)
		require.False(t, MemoryOf(m, c, l, big.MaxBudget+1, 4704).Fits, s)
	}
	never := MemoryOf(m, c, layout(t, "dp8:replicas"), 1, 4704)
	require.False(t, never.Fits)
	require.Zero(t, never.MaxBudget)
	require.Contains(t, never.Refusal, "437.90 GiB of weights")
	require.Contains(t, never.Refusal, "no budget fits")
	// The article's cut: experts that work on all rows at once take 131,072 tokens under tp8, but under dp8 the peak follows
	// budget x dp, so that only the eighth of it fits.
	c.ExpertChunk = 0
	agrs := layout(t, "dp8+ep8:agrs")
	require.True(t, MemoryOf(m, c, layout(t, "tp8"), 131072, 4704).Fits)
	require.False(t, MemoryOf(m, c, agrs, 131072, 4704).Fits)
	require.True(t, MemoryOf(m, c, agrs, 16384, 4704).Fits)
	require.False(t, MemoryOf(m, c, agrs, 65536, 4704).Fits)
}

// TestMemoryGrows: more tokens never take less memory, and all items add up to the usable memory.
func TestMemoryGrows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		names := ModelNames()
		m, err := Preset(rapid.SampledFrom(names).Draw(t, "model"))
		require.NoError(t, err)
		c, err := ClusterPreset(rapid.SampledFrom([]string{"h200", "h100", "mi300x"}).Draw(t, "gpu"), 8)
		require.NoError(t, err)
		ls := StandardLayouts(m, 8)
		l := ls[rapid.IntRange(0, len(ls)-1).Draw(t, "layout")]
		n := rapid.IntRange(1, 1<<18).Draw(t, "budget")
		a, b := MemoryOf(m, c, l, n, 1000), MemoryOf(m, c, l, n+1, 1000)
		require.GreaterOrEqual(t, a.Free, b.Free)
		require.Equal(t, a.Usable, a.Free+a.Weights+sum(a.Terms))
		require.GreaterOrEqual(t, float64(a.Weights)*1.0001, a.Floor*0.9999)
		require.Equal(t, a.MaxBudget, b.MaxBudget, "the limit does not depend on what was asked")
	})
}
