package checkpoint

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestConfigOdd(t *testing.T) {
	f, err := Open("testdata/odd-a")
	require.NoError(t, err)
	require.Equal(t, &Config{
		HiddenSize: 72, NumHiddenLayers: 3, NumAttentionHeads: 6, NumKeyValueHeads: 2, HeadDim: 16,
		IntermediateSize: 104, MoEIntermediateSize: 40, NumExperts: 10, NumExpertsPerTok: 3, DecoderSparseStep: 2,
		MLPOnlyLayers: []int{}, RMSNormEps: 1e-6, RopeTheta: 10000, VocabSize: 515, MaxPositionEmbeddings: 512,
		TieWordEmbeddings: true, DType: "bfloat16",
	}, f.Config)
	require.Equal(t, []bool{false, true, false}, []bool{f.Config.IsMoE(0), f.Config.IsMoE(1), f.Config.IsMoE(2)})
	require.Empty(t, f.EOS())
	require.NoError(t, f.Close())
}

// change returns tiny's config.json with fields set, or removed where the value is nil.
func change(t testing.TB, fields map[string]any) []byte {
	c := tiny()
	for k, v := range fields {
		if v == nil {
			delete(c, k)
		} else {
			c[k] = v
		}
	}
	return jsonBytes(t, c)
}

func TestConfigForms(t *testing.T) {
	null := json.RawMessage("null")
	c, err := ParseConfig(change(t, nil), "c")
	require.NoError(t, err)
	require.Equal(t, 2, c.HeadDim, "hidden_size / num_attention_heads")
	require.Equal(t, 1, c.DecoderSparseStep)
	require.False(t, c.IsMoE(0), "in mlp_only_layers")
	require.True(t, c.IsMoE(1))

	c, err = ParseConfig(change(t, map[string]any{
		"rope_theta": nil, "rope_parameters": map[string]any{"rope_theta": 5e6, "rope_type": "default"},
		"dtype": "float16", "torch_dtype": "float32", "rope_scaling": null, "sliding_window": 4096,
		"use_sliding_window": false, "eos_token_id": []int{3, 4}, "layer_types": []string{"full_attention", "full_attention"},
		"head_dim": 6, "quantization_config": null,
	}), "c")
	require.NoError(t, err)
	require.Equal(t, 5e6, c.RopeTheta)
	require.Equal(t, "float16", c.DType)
	require.Equal(t, []int32{3, 4}, c.EOSTokenIDs)
	require.Equal(t, 6, c.HeadDim)

	c, err = ParseConfig(change(t, map[string]any{"num_experts": 0, "num_experts_per_tok": nil, "moe_intermediate_size": nil}), "c")
	require.NoError(t, err)
	require.False(t, c.IsMoE(1), "no experts at all")

	c, err = ParseConfig(change(t, map[string]any{"mlp_only_layers": nil, "intermediate_size": nil, "head_dim": null}), "c")
	require.NoError(t, err)
	require.True(t, c.IsMoE(0))
	require.Equal(t, 2, c.HeadDim)
}

func TestConfigRefuses(t *testing.T) {
	type fields = map[string]any
	cases := []struct {
		fields fields
		want   string
	}{
		{fields{"architectures": nil}, `no field "architectures"`},
		{fields{"architectures": []string{"LlamaForCausalLM"}}, `architectures ["LlamaForCausalLM"] is not supported, want Qwen3MoeForCausalLM`},
		{fields{"hidden_size": nil}, `no field "hidden_size"`},
		{fields{"num_hidden_layers": nil}, `no field "num_hidden_layers"`},
		{fields{"num_attention_heads": nil}, `no field "num_attention_heads"`},
		{fields{"num_key_value_heads": nil}, `no field "num_key_value_heads"`},
		{fields{"vocab_size": nil}, `no field "vocab_size"`},
		{fields{"max_position_embeddings": nil}, `no field "max_position_embeddings"`},
		{fields{"num_experts": nil}, `no field "num_experts"`},
		{fields{"num_experts_per_tok": nil}, `no field "num_experts_per_tok", which 1 MoE layers need`},
		{fields{"moe_intermediate_size": nil}, `no field "moe_intermediate_size", which 1 MoE layers need`},
		{fields{"intermediate_size": nil}, `no field "intermediate_size", which 1 dense layers need`},
		{fields{"rms_norm_eps": nil}, `no field "rms_norm_eps"`},
		{fields{"rope_theta": nil}, `no field "rope_theta", nor one in rope_parameters`},
		{fields{"hidden_act": nil}, `no field "hidden_act"`},
		{fields{"hidden_act": "gelu"}, `hidden_act "gelu" is not supported, want silu`},
		{fields{"hidden_size": "4"}, `field "hidden_size" is a string, want int`},
		{fields{"hidden_size": 4.5}, `field "hidden_size" is a number 4.5, want int`},
		{fields{"hidden_size": 0}, "hidden_size is 0, want at least 1"},
		{fields{"vocab_size": -5}, "vocab_size is -5, want at least 1"},
		{fields{"hidden_size": int64(1) << 40}, "hidden_size is 1099511627776 > limit 1048576"},
		{fields{"num_hidden_layers": 5000}, "num_hidden_layers is 5000 > limit 4096"},
		{fields{"hidden_size": 5}, `no field "head_dim", and hidden_size 5 is not a multiple of num_attention_heads 2`},
		{fields{"head_dim": 3}, "head_dim is 3, want an even number"},
		{fields{"num_attention_heads": 4, "num_key_value_heads": 3}, "num_attention_heads 4 is not a multiple of num_key_value_heads 3"},
		{fields{"num_experts_per_tok": 3}, "num_experts_per_tok 3 > num_experts 2"},
		{fields{"num_experts_per_tok": 0}, "num_experts_per_tok is 0, want 1 to"},
		{fields{"decoder_sparse_step": 0}, "decoder_sparse_step is 0, want at least 1"},
		{fields{"mlp_only_layers": []int{2}}, "mlp_only_layers[0] is 2, but there are only 2 layers"},
		{fields{"rms_norm_eps": -1}, "rms_norm_eps is -1, want 0 to 1"},
		{fields{"rope_theta": 0}, "rope_theta is 0, want more than 0"},
		{fields{"attention_bias": true}, "attention_bias true is not supported"},
		{fields{"rope_scaling": fields{"type": "yarn", "factor": 4}}, `rope_scaling {"factor":4,"type":"yarn"} is not supported, want null`},
		{fields{"rope_parameters": fields{"rope_type": "yarn"}}, `rope_parameters {"rope_type":"yarn"} is not supported`},
		{fields{"rope_parameters": fields{"rope_theta": 5.0}}, "rope_theta is 10000, but 5 in rope_parameters"},
		{fields{"partial_rotary_factor": 0.5}, "partial_rotary_factor 0.5 is not supported"},
		{fields{"use_sliding_window": true, "sliding_window": 4096}, "use_sliding_window with sliding_window 4096 is not supported"},
		{fields{"layer_types": []string{"full_attention", "sliding_attention"}}, `layer_types[1] "sliding_attention" is not supported`},
		{fields{"quantization_config": fields{"quant_method": "fp8"}}, "quantization_config is not supported"},
		{fields{"eos_token_id": "x"}, `eos_token_id "x" is not a number`},
		{fields{"eos_token_id": []string{"x"}}, `eos_token_id ["x"] is not a list of numbers`},
		{fields{"eos_token_id": -1}, "eos_token_id -1 is not a token id"},
	}
	for _, c := range cases {
		_, err := ParseConfig(change(t, c.fields), "m/config.json")
		require.ErrorContains(t, err, c.want, "%v", c.fields)
		require.ErrorContains(t, err, "checkpoint: m/config.json: ")
	}
	_, err := ParseConfig([]byte(`{"hidden_size":`), "m/config.json")
	require.ErrorContains(t, err, "m/config.json: JSON, byte 15 of 15: unexpected end")
}

// FuzzConfig: no config panics, and one that passes has sizes that products can be made of.
func FuzzConfig(f *testing.F) {
	f.Add(change(f, nil))
	f.Add(change(f, map[string]any{"rope_parameters": map[string]any{"rope_theta": 1}, "eos_token_id": []int{1}}))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := ParseConfig(data, "fuzz")
		if err != nil {
			return
		}
		if c.HeadDim*c.NumAttentionHeads <= 0 || c.VocabSize*c.HiddenSize <= 0 || c.NumAttentionHeads%c.NumKeyValueHeads != 0 {
			t.Fatalf("%+v", c)
		}
		for l := range c.NumHiddenLayers {
			if c.IsMoE(l) && (c.NumExpertsPerTok < 1 || c.MoEIntermediateSize < 1) || !c.IsMoE(l) && c.IntermediateSize < 1 {
				t.Fatalf("layer %d of %+v", l, c)
			}
		}
	})
}
