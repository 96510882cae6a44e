package plan

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPublishedTotals holds every preset's parameter counts against what its authors print.
func TestPublishedTotals(t *testing.T) {
	exact := map[string]int64{"mixtral-8x7b": 46702792704, "qwen3-30b-a3b": 30532122624, "deepseek-v3": 671026419200,
		"gpt-oss-120b": 116829156672}
	for _, name := range ModelNames() {
		m := preset(t, name)
		require.NoError(t, m.Validate(), name)
		p := m.Params()
		require.InEpsilon(t, m.PublishedTotal, float64(p.Total), 0.03, name)
		near := math.Min(math.Abs(float64(p.Active)/m.PublishedActive-1), math.Abs(float64(p.ActiveNoEmbedding)/m.PublishedActive-1))
		require.Less(t, near, 0.03, "%s: active %d or %d", name, p.Active, p.ActiveNoEmbedding)
		if n, ok := exact[name]; ok {
			require.Equal(t, n, p.Total, name)
		}
	}
}

// TestConfigs reads a config.json of each family and compares it with the preset.
func TestConfigs(t *testing.T) {
	files, err := filepath.Glob("testdata/configs/*.json")
	require.NoError(t, err)
	require.Len(t, files, 7)
	for _, file := range files {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		m, err := ParseConfig(data)
		require.NoError(t, err, file)
		want := preset(t, strings.TrimSuffix(filepath.Base(file), ".json"))
		require.Equal(t, want.Params(), m.Params(), file)
		require.Equal(t, want.WeightBytes(), m.WeightBytes(), file)
		require.Equal(t, want.KVBytes(100000, 1), m.KVBytes(100000, 1), file)
		require.Equal(t, want.MoELayers(), m.MoELayers(), file)
		require.Equal(t, FanoutGrouped(8, want.Experts, want.TopK, want.Groups, want.TopGroups),
			FanoutGrouped(8, m.Experts, m.TopK, m.Groups, m.TopGroups), file)
	}
}

func TestConfigErrors(t *testing.T) {
	for _, c := range []struct{ json, want string }{
		{`{`, "config.json"},
		{`{"model_type":"llama","num_hidden_layers":32}`, "dense"},
		{`{"model_type":"qwen3","num_hidden_layers":32}`, "dense"},
		{`{"model_type":"grok","num_experts":8}`, `unknown model_type "grok"; have qwen3_moe`},
		{`{"model_type":"mixtral","num_hidden_layers":-1,"num_local_experts":8}`, "no layers (-1)"},
		{`{"model_type":"mixtral","num_hidden_layers":2,"hidden_size":8,"vocab_size":8,"num_attention_heads":2,"num_local_experts":8,
		   "num_experts_per_tok":9,"intermediate_size":4}`, "9 of 8 experts"},
		{`{"model_type":"mixtral","num_hidden_layers":2,"hidden_size":8,"vocab_size":8,"num_attention_heads":3,"num_key_value_heads":2,
		   "num_local_experts":8,"num_experts_per_tok":2,"intermediate_size":4}`, "second must divide the first"},
		{`{"model_type":"qwen3_moe","num_hidden_layers":2,"num_experts":8,"mlp_only_layers":[5]}`, "layer 5 of 2"},
		{`{"model_type":"deepseek_v3","num_hidden_layers":2,"n_routed_experts":8,"moe_layer_freq":2}`, "moe_layer_freq 2"},
		{`{"model_type":"llama4","num_hidden_layers":2,"num_local_experts":8}`, "interleave_moe_layer_step 0"},
		{`{"model_type":"mixtral","num_local_experts":8,"quantization_config":{"quant_method":"awq"}}`, `quant_method "awq"`},
		{`{"model_type":"mixtral","torch_dtype":"float32"}`, `dtype "float32"`},
		{`{"model_type":"mixtral","num_hidden_layers":99999999}`, "99999999 layers"},
		{`{"model_type":"llama4","text_config":"x"}`, "text_config"},
		{`{"model_type":"mixtral","num_hidden_layers":"many"}`, "config.json"},
	} {
		_, err := ParseConfig([]byte(c.json))
		require.ErrorContains(t, err, c.want, c.json)
	}
	_, err := Preset("gpt-2")
	require.ErrorContains(t, err, "qwen3-235b-a22b")
}

// FuzzParseConfig: no input panics, and what is accepted is a model that can be counted.
func FuzzParseConfig(f *testing.F) {
	files, _ := filepath.Glob("testdata/configs/*.json")
	for _, file := range files {
		if data, err := os.ReadFile(file); err == nil {
			f.Add(data)
		}
	}
	f.Add([]byte(`{"model_type":"qwen3_moe","decoder_sparse_step":-3,"num_hidden_layers":9223372036854775807}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := ParseConfig(data)
		if err == nil {
			require.Greater(t, m.MoELayers(), 0)
			require.NotEmpty(t, m.Tensors())
		}
	})
}

// TestShards adds up what all ranks hold: sharded tensors once, replicated ones once per rank.
func TestShards(t *testing.T) {
	for _, name := range ModelNames() {
		m := preset(t, name)
		for _, s := range []string{"tp2", "tp4+ep4", "dp2tp2+ep4:agrs", "dp4+ep4:agrs", "dp4"} {
			l := layout(t, s)
			if l.Check(m) != nil {
				continue
			}
			for _, ts := range m.Tensors() {
				got := rankTensorBytes(m, l, ts)
				parts := map[Shard]int{Replicated: 1, ByHeads: l.TP, BySize: l.TP, ByVocab: l.TP, ByExperts: l.ExpertRanks(),
					ByKVHeads: min(l.TP, m.Attention.KVHeads)}[ts.Shard]
				if ts.Name == "experts down bias" && !l.EP {
					parts = 1
				}
				require.InEpsilon(t, float64(ts.Bytes())/float64(parts), float64(got), 0.02, "%s %s %s", name, s, ts.Name)
				require.GreaterOrEqual(t, got*int64(parts), ts.Bytes(), "%s %s %s", name, s, ts.Name)
			}
		}
	}
	// 30 heads of vocabulary on 4 ranks: the last is padded.
	m := preset(t, "mixtral-8x7b")
	m.Vocab = 30
	require.EqualValues(t, 8*4096*2, rankTensorBytes(m, Layout{TP: 4, DP: 1, PP: 1}, m.Tensors()[0]))
}

func TestFormats(t *testing.T) {
	require.EqualValues(t, 2*256*512, BF16.Bytes(256, 512))
	require.EqualValues(t, 256*512+4*2*4, FP8.Bytes(256, 512))
	require.EqualValues(t, 129*1+4*2*1, FP8.Bytes(129, 1), "a started block has a scale")
	require.EqualValues(t, 256*512/2+256*16, MXFP4.Bytes(256, 512))
	require.EqualValues(t, 256*512/2+2*256*16, INT4.Bytes(256, 512))
	require.EqualValues(t, 40, F32.Bytes(10, 1))
	m, err := preset(t, "qwen3-235b-a22b").WithFormat(FP8)
	require.NoError(t, err)
	require.InEpsilon(t, 0.5, float64(m.WeightBytes())/float64(preset(t, "qwen3-235b-a22b").WeightBytes()), 0.01)
	_, err = m.WithFormat("fp3")
	require.ErrorContains(t, err, "fp3")
}

// TestKV: windows cap what a long request keeps, a latent vector is not split, heads are.
func TestKV(t *testing.T) {
	oss := preset(t, "gpt-oss-120b")
	require.EqualValues(t, 2*8*64*2*(18*1000+18*128), oss.KVBytes(1000, 1))
	require.EqualValues(t, 2*8*64*2*36*100, oss.KVBytes(100, 1))
	v3 := preset(t, "deepseek-v3")
	require.EqualValues(t, 61*576*2, v3.KVBytesPerToken(1, 61))
	require.EqualValues(t, 61*576*2, v3.KVBytesPerToken(8, 61))
	mix := preset(t, "mixtral-8x7b")
	require.Equal(t, mix.KVBytesPerToken(1, 32), 8*mix.KVBytesPerToken(8, 32))
}
