package plan

import (
	"fmt"
	"slices"
	"strings"
)

// The presets hold the values of the models' config.json files; a test compares their parameter counts with the published ones.
var models = map[string]Model{
	"qwen3-235b-a22b": {Family: "qwen3_moe", Layers: 94, Hidden: 4096, Vocab: 151936, Experts: 128, TopK: 8, ExpertIntermediate: 1536,
		Attention:      Attention{Heads: 64, KVHeads: 4, HeadDim: 128, QKNorm: true},
		PublishedTotal: 235e9, PublishedActive: 22e9, MaxPosition: 262144},
	"qwen3-30b-a3b": {Family: "qwen3_moe", Layers: 48, Hidden: 2048, Vocab: 151936, Experts: 128, TopK: 8, ExpertIntermediate: 768,
		Attention:      Attention{Heads: 32, KVHeads: 4, HeadDim: 128, QKNorm: true},
		PublishedTotal: 30.5e9, PublishedActive: 3.3e9, MaxPosition: 262144},
	"deepseek-v3": {Family: "deepseek_v3", Layers: 61, Hidden: 7168, Vocab: 129280, Experts: 256, TopK: 8, ExpertIntermediate: 2048,
		SharedIntermediate: 2048, DenseLayers: 3, DenseIntermediate: 18432, RouterBias: true, Groups: 8, TopGroups: 4,
		Attention: mla(128), Format: FP8, PredictLayersUnused: 1,
		PublishedTotal: 671e9, PublishedActive: 37e9, MaxPosition: 163840,
		PublishedTotalNote: "main model; 685B with the multi-token-prediction layer"},
	"kimi-k2": {Family: "kimi_k2", Layers: 61, Hidden: 7168, Vocab: 163840, Experts: 384, TopK: 8, ExpertIntermediate: 2048,
		SharedIntermediate: 2048, DenseLayers: 1, DenseIntermediate: 18432, RouterBias: true, Groups: 1, TopGroups: 1,
		Attention: mla(64), Format: FP8, PublishedTotal: 1e12, PublishedActive: 32e9, MaxPosition: 131072,
		PublishedTotalNote: "model card; the technical report says 1.04T and 32.6B"},
	"mixtral-8x7b": {Family: "mixtral", Layers: 32, Hidden: 4096, Vocab: 32000, Experts: 8, TopK: 2, ExpertIntermediate: 14336,
		Attention:      Attention{Heads: 32, KVHeads: 8, HeadDim: 128},
		PublishedTotal: 46.7e9, PublishedActive: 12.9e9, MaxPosition: 32768},
	"llama-4-maverick": {Family: "llama4", Layers: 48, Hidden: 5120, Vocab: 202048, Experts: 128, TopK: 1, ExpertIntermediate: 8192,
		SharedIntermediate: 8192, DenseLayers: 24, DenseIntermediate: 16384,
		Attention:      Attention{Heads: 40, KVHeads: 8, HeadDim: 128, Window: 8192, WindowLayers: 36},
		PublishedTotal: 400e9, PublishedActive: 17e9, MaxPosition: 1048576,
		PublishedTotalNote: "the text model; the vision tower is not counted"},
	"gpt-oss-120b": {Family: "gpt_oss", Layers: 36, Hidden: 2880, Vocab: 201088, Experts: 128, TopK: 4, ExpertIntermediate: 2880,
		ExpertBias: true, RouterBias: true, ExpertFormat: MXFP4,
		Attention: Attention{Heads: 64, KVHeads: 8, HeadDim: 64, Bias: true, OutBias: true, Sinks: true,
			Window: 128, WindowLayers: 18},
		PublishedTotal: 116.8e9, PublishedActive: 5.1e9, MaxPosition: 131072,
		PublishedTotalNote: "the active count leaves the input embedding out"},
}

var modelAliases = map[string]string{
	"deepseek-r1": "deepseek-v3", "kimi-k2-instruct": "kimi-k2", "qwen3-235b-a22b-instruct-2507": "qwen3-235b-a22b",
	"qwen3-30b-a3b-instruct-2507": "qwen3-30b-a3b",
}

func mla(heads int) Attention {
	return Attention{Kind: MLA, Heads: heads, KVHeads: heads, QRank: 1536, KVRank: 512, NopeDim: 128, RopeDim: 64, VDim: 128}
}

// ModelNames returns the names of the presets, sorted.
func ModelNames() []string { return names(models, modelAliases) }

// Preset returns the model of that name, upper or lower case. An unknown name is an error that lists the known ones.
func Preset(name string) (Model, error) {
	key := strings.ToLower(name)
	if a, ok := modelAliases[key]; ok {
		key = a
	}
	m, ok := models[key]
	if !ok {
		return Model{}, fmt.Errorf("plan: no model preset %q; have %s, or give a model folder or its config.json", name, strings.Join(ModelNames(), ", "))
	}
	m.Name = strings.ToLower(name)
	if m.Format == "" {
		m.Format = BF16
	}
	if m.ExpertFormat == "" {
		m.ExpertFormat = m.Format
	}
	return m, nil
}

// WithFormat returns the model with all matrices stored in f, as after a conversion; the embeddings and the router stay bf16.
func (m Model) WithFormat(f Format) (Model, error) {
	switch f {
	case BF16, FP8:
		m.Format, m.ExpertFormat = f, f
	case MXFP4, INT4:
		m.Format, m.ExpertFormat = BF16, f
	default:
		return m, fmt.Errorf("plan: no weight format %q; have bf16, fp8, mxfp4, int4", f)
	}
	return m, nil
}

func names[V any](m map[string]V, aliases map[string]string) []string {
	var out []string
	for k := range m {
		out = append(out, k)
	}
	for k := range aliases {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}
