package plan

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func question(t testing.TB, model, cluster, workload string) Question {
	c, err := ClusterPreset(cluster, 0)
	require.NoError(t, err)
	w, err := WorkloadPreset(workload)
	require.NoError(t, err)
	return Question{preset(t, model), c, w, 32768}
}

func rules(as []Advice) map[string]Advice {
	m := map[string]Advice{}
	for _, a := range as {
		m[a.Rule] = a
	}
	return m
}

// TestRuleBoundaries checks the rules at and beside every boundary.
func TestRuleBoundaries(t *testing.T) {
	for n, want := range map[int]string{1: RuleInFlightLow, 127: RuleInFlightLow, 128: RuleInFlightLow, 129: RuleInFlightGap,
		255: RuleInFlightGap, 256: RuleInFlightCross, 257: RuleInFlightCross, 511: RuleInFlightCross, 512: RuleInFlightHigh,
		513: RuleInFlightHigh} {
		a := inFlight(n)
		require.Equal(t, want, a.Rule, n)
		require.Equal(t, want == RuleInFlightGap || want == RuleInFlightCross, a.Says == "measure" && a.Measure != "", n)
	}
	for _, c := range []struct {
		k, e int
		want string
	}{{1, 128, RuleDensityLow}, {99, 10000, RuleDensityLow}, {1, 100, RuleDensityGap}, {101, 10000, RuleDensityGap},
		{8, 384, RuleDensityGap}, {3, 100, RuleDensityGap}, {301, 10000, RuleDensityHigh}, {8, 256, RuleDensityHigh}, {2, 8, RuleDensityHigh}} {
		a := density(Model{TopK: c.k, Experts: c.e})
		require.Equal(t, c.want, a.Rule, "%d of %d", c.k, c.e)
		require.Equal(t, c.want == RuleDensityGap, a.Measure != "")
	}
	for n, want := range map[int]string{63: "note", 64: "measure", 65: "measure", 127: "measure", 128: "measure", 129: "note"} {
		require.Equal(t, want, overlapRule(n*8, 8).Says, n)
	}
}

// TestKVRules: fewer KV heads than tp is a note with the true gain, one head is an override, as many heads are neither.
func TestKVRules(t *testing.T) {
	for _, c := range []struct {
		model, cluster string
		rule           string
		gain           string
	}{
		{"qwen3-235b-a22b", "8xh200", RuleKVHeads, "2x the tokens"}, {"qwen3-30b-a3b", "4xh200", "", ""}, {"qwen3-30b-a3b", "8xh200", RuleKVHeads, "2x the tokens"},
		{"mixtral-8x7b", "8xh100", "", ""}, {"gpt-oss-120b", "8xh100", "", ""}, {"deepseek-v3", "8xh200", RuleKVLatent, "8x the requests"},
	} {
		as, _ := Advise(question(t, c.model, c.cluster, "judge"))
		got := rules(as)
		for _, r := range []string{RuleKVHeads, RuleKVLatent} {
			a, ok := got[r]
			require.Equal(t, r == c.rule, ok, "%s on %s: %s", c.model, c.cluster, r)
			if ok {
				require.Contains(t, a.Why, c.gain)
			}
		}
	}
}

// TestVerdicts: the article's judge gets tp8+ep8 for the article's reasons; the overrides override.
func TestVerdicts(t *testing.T) {
	for _, c := range []struct {
		model, cluster, workload string
		want                     string
		because                  string
	}{
		{"qwen3-235b-a22b", "8xh200", "judge", "tp8+ep8", RuleOneNode},
		{"qwen3-235b-a22b", "8xh200", "decode-heavy", "dp8+ep8:agrs", RuleKVFull},
		{"qwen3-30b-a3b", "8xh200", "decode-heavy", "dp8+ep8:agrs", RuleKVFull},
		{"llama-4-maverick", "8xmi300x", "judge", "tp8", RuleDensityLow},
		{"deepseek-r1", "8xh200", "decode-heavy", "dp8+ep8:agrs", RuleKVFull},
		{"deepseek-r1", "4x8xh200", "judge", "dp32+ep32:alltoall", RuleManyNodes},
		{"qwen3-235b-a22b", "8xh100", "judge", "dp2tp4+ep8:agrs", RuleKVFull},
		{"kimi-k2", "8xh100", "judge", "", RuleTooBig},
		{"mixtral-8x7b", "1xh200", "judge", "tp1+ep1", RuleKVFull},
	} {
		as, v := Advise(question(t, c.model, c.cluster, c.workload))
		require.Equal(t, c.want, v.Layout, "%s %s %s: %v", c.model, c.cluster, c.workload, v.Why)
		require.Contains(t, v.Why, c.because, "%s %s %s", c.model, c.cluster, c.workload)
		for _, r := range v.Why {
			require.True(t, fired(as, r), "%s decided without having fired", r)
		}
	}
}

// TestFP8Rule: 1536/8 = 192 is no multiple of 128, 1536/4 = 384 is.
func TestFP8Rule(t *testing.T) {
	for cluster, want := range map[string]bool{"8xh200": true, "4xh200": false, "2xh200": false} {
		q := question(t, "qwen3-235b-a22b", cluster, "judge")
		m, err := q.Model.WithFormat(FP8)
		require.NoError(t, err)
		q.Model = m
		as, _ := Advise(q)
		require.Equal(t, want, fired(as, RuleFP8Slice), cluster)
		as, _ = Advise(question(t, "qwen3-235b-a22b", cluster, "judge"))
		require.False(t, fired(as, RuleFP8Slice), "bf16 has no blocks")
	}
}

func TestMoreRanksThanExperts(t *testing.T) {
	for cluster, want := range map[string]bool{"32x8xh200": false, "40x8xh200": true} {
		as, _ := Advise(question(t, "deepseek-v3", cluster, "decode-heavy"))
		require.Equal(t, want, fired(as, RuleSparseSpread), cluster)
	}
}
