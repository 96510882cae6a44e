package plan

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestGate is the table of the gate over every combination of tp, dp, ep and replicas.
func TestGate(t *testing.T) {
	for _, tp := range []int{1, 2, 8} {
		for _, dp := range []int{1, 2, 8} {
			for _, ep := range []bool{false, true} {
				for _, replicas := range []bool{false, true} {
					l := Layout{TP: tp, DP: dp, PP: 1, EP: ep, Replicas: replicas}
					require.Equal(t, dp > 1 && ep && !replicas, l.UseExchange(), "%+v", l)
				}
			}
		}
	}
}

// TestSteps is the table of configurations: which collectives, how many per layer, over how many ranks.
func TestSteps(t *testing.T) {
	m := preset(t, "qwen3-235b-a22b")
	type step struct {
		op    string
		ranks int
		count int
	}
	for _, c := range []struct {
		layout string
		want   []step
	}{
		{"tp1", nil},
		{"tp8", []step{{"all_reduce", 8, 94}, {"all_reduce", 8, 94}}},
		{"tp8+ep8", []step{{"all_reduce", 8, 94}, {"all_reduce", 8, 94}}},
		{"dp8", []step{{"all_gatherv", 8, 94}, {"reduce_scatterv", 8, 94}}},
		{"dp2tp4", []step{{"all_reduce", 4, 94}, {"all_gatherv", 8, 94}, {"reduce_scatterv", 8, 94}}},
		{"dp8+ep8:agrs", []step{{"all_gatherv", 8, 94}, {"reduce_scatterv", 8, 94}}},
		{"dp8+ep8:alltoall", []step{{"dispatch", 8, 94}, {"combine", 8, 94}}},
		{"dp2tp4+ep8:alltoall", []step{{"reduce_scatterv", 4, 94}, {"dispatch", 8, 94}, {"combine", 8, 94}, {"all_gatherv", 4, 94}}},
		{"dp8:replicas", nil},
		{"dp2tp4:replicas", []step{{"all_reduce", 4, 94}, {"all_reduce", 4, 94}}},
		{"tp4pp2", []step{{"all_reduce", 4, 94}, {"all_reduce", 4, 94}, {"send", 2, 1}}},
	} {
		var got []step
		for _, s := range Steps(m, layout(t, c.layout)) {
			got = append(got, step{s.Op, s.Ranks, s.Count})
			require.NotEmpty(t, s.Why)
		}
		require.Equal(t, c.want, got, c.layout)
	}
	// Dense layers keep their all-reduces beside an exchange: 3 of DeepSeek's 61 layers.
	var dense int
	for _, s := range Steps(preset(t, "deepseek-v3"), layout(t, "dp2tp4+ep8:alltoall")) {
		if s.Op == "all_reduce" {
			dense += s.Count
		}
	}
	require.Equal(t, 6, dense)
}

// TestTrafficAddsUp: the steps' bytes are the layout's bytes, in the ring and the distinct-wire counting.
func TestTrafficAddsUp(t *testing.T) {
	for _, name := range []string{"qwen3-235b-a22b", "deepseek-v3", "llama-4-maverick"} {
		m := preset(t, name)
		for _, s := range []string{"tp8+ep8", "dp8", "dp8+ep8:agrs", "dp2tp4+ep8:agrs", "dp8+ep8:alltoall", "dp2tp4+ep8:alltoall", "tp4pp2+ep4"} {
			l := layout(t, s)
			var steps float64
			for _, st := range Steps(m, l) {
				steps += st.UnitsOfS * float64(st.Count)
			}
			counting := "ring"
			if l.UseExchange() && l.Backend == AllToAll {
				counting = "distinct-wire"
			}
			v := volume(t, m, s, counting)
			require.InEpsilon(t, steps*ActivationBytes(m, 32768), v.Aggregate, 1e-12, "%s %s", name, s)
			require.InEpsilon(t, v.Aggregate, 8*v.PerGPU, 1e-12)
		}
	}
}

func TestParseLayout(t *testing.T) {
	for _, s := range []string{"tp1", "tp8", "tp8+ep8", "dp8", "dp8:replicas", "dp2tp4+ep8:agrs", "dp2tp4+ep8:alltoall", "tp4pp2",
		"dp2tp2pp2+ep4:alltoall"} {
		layout(t, s)
	}
	l, err := ParseLayout("DP8+EP")
	require.NoError(t, err)
	require.Equal(t, "dp8+ep8:agrs", l.String())
	for s, want := range map[string]string{"": "not understood", "tp": "not understood", "8": "not understood", "tp8+ep4": "= 8 ranks",
		"tp0": "sizes must be", "tp8:alltoall": "needs dp > 1", "dp8:agrs": "and ep", "tp8:replicas": "need dp > 1",
		"tp99999": "sizes must be", "dp8+ep8:deepep": "not understood", "tp8tp8": "not understood"} {
		_, err := ParseLayout(s)
		require.ErrorContains(t, err, want, s)
	}
}

func TestCheck(t *testing.T) {
	qwen, v3, oss := preset(t, "qwen3-235b-a22b"), preset(t, "deepseek-v3"), preset(t, "gpt-oss-120b")
	fp8, err := qwen.WithFormat(FP8)
	require.NoError(t, err)
	for _, c := range []struct {
		m      Model
		layout string
		want   string // empty: fine
	}{
		{qwen, "tp8", ""}, {qwen, "tp16", ""}, {qwen, "tp3", "tp 3 does not divide the 64 attention heads"},
		{qwen, "tp128", "does not divide the 64"}, {fp8, "tp8", "slice of 192"}, {fp8, "tp8+ep8", ""}, {fp8, "tp4", ""},
		{v3, "tp16", ""}, {v3, "tp32", "slice of 64"}, {v3, "tp32+ep32", ""}, {oss, "tp8", ""}, {oss, "tp64", ""}, {qwen, "dp7", "use ep"},
		{preset(t, "llama-4-maverick"), "tp16", "40 attention heads"}, {preset(t, "mixtral-8x7b"), "tp1pp33", "33 stages for 32 layers"},
	} {
		err := layout(t, c.layout).Check(c.m)
		if c.want == "" {
			require.NoError(t, err, c.layout)
		} else {
			require.ErrorContains(t, err, c.want, c.layout)
		}
	}
	require.ErrorContains(t, Layout{TP: 1, DP: 0, PP: 1}.Check(qwen), "dp 0")
	for _, n := range []int{1, 2, 3, 8, 16} {
		for _, l := range StandardLayouts(qwen, n) {
			require.NoError(t, l.Check(qwen))
			require.Equal(t, n, l.GPUs())
		}
	}
}

func TestClusters(t *testing.T) {
	for _, c := range []struct {
		name        string
		gpus        int
		full        string
		nodes, each int
	}{
		{"h200", 8, "8xh200", 1, 8}, {"H100", 4, "4xh100", 1, 4}, {"h100", 32, "4x8xh100", 4, 8}, {"8xh200", 0, "8xh200", 1, 8},
		{"4x8xmi300x", 32, "4x8xmi300x", 4, 8}, {"gb200", 72, "72xgb200", 1, 72}, {"mi300x", 320, "40x8xmi300x", 40, 8},
	} {
		k, err := ClusterPreset(c.name, c.gpus)
		require.NoError(t, err, c.name)
		require.NoError(t, k.Validate())
		require.Equal(t, []any{c.full, c.nodes, c.each}, []any{k.Name, k.Nodes, k.GPUsPerNode})
	}
	for _, c := range []struct {
		name string
		gpus int
		want string
	}{{"h200", 0, "0 GPUs"}, {"h200", -8, "-8 GPUs"}, {"0xh200", 0, "zero GPUs"}, {"a100", 8, "have b200"}, {"h200", 12, "whole nodes"},
		{"8xh200", 16, "but 16 were asked for"}, {"8x", 0, "want a kind"}} {
		_, err := ClusterPreset(c.name, c.gpus)
		require.ErrorContains(t, err, c.want, c.name)
	}
	good, err := ClusterPreset("h200", 16)
	require.NoError(t, err)
	for want, breakIt := range map[string]func(*Cluster){
		"0 nodes": func(c *Cluster) { c.Nodes = 0 }, "share 1.5": func(c *Cluster) { c.Utilization = 1.5 },
		"positive rates": func(c *Cluster) { c.TFLOPs = 0 }, "no network": func(c *Cluster) { c.NetGBs = 0 },
	} {
		c := good
		breakIt(&c)
		require.ErrorContains(t, c.Validate(), want)
	}
}
