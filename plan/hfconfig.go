package plan

import (
	"encoding/json"
	"fmt"
	"strings"
)

// hfConfig holds the fields of a Hugging Face config.json that the families use; their names differ between families.
type hfConfig struct {
	ModelType     string   `json:"model_type"`
	Architectures []string `json:"architectures"`
	NameOrPath    string   `json:"_name_or_path"`

	Layers       int  `json:"num_hidden_layers"`
	Hidden       int  `json:"hidden_size"`
	Vocab        int  `json:"vocab_size"`
	Tied         bool `json:"tie_word_embeddings"`
	Heads        int  `json:"num_attention_heads"`
	KVHeads      int  `json:"num_key_value_heads"`
	HeadDim      int  `json:"head_dim"`
	Bias         bool `json:"attention_bias"`
	MaxPosition  int  `json:"max_position_embeddings"`
	Intermediate int  `json:"intermediate_size"`

	Experts        int   `json:"num_experts"`
	LocalExperts   int   `json:"num_local_experts"`
	RoutedExperts  int   `json:"n_routed_experts"`
	TopK           int   `json:"num_experts_per_tok"`
	TopKToken      int   `json:"experts_per_token"`
	MoEInter       int   `json:"moe_intermediate_size"`
	SharedExperts  int   `json:"n_shared_experts"`
	SharedInter    int   `json:"shared_expert_intermediate_size"`
	DenseFirst     int   `json:"first_k_dense_replace"`
	MoEFreq        int   `json:"moe_layer_freq"`
	SparseStep     int   `json:"decoder_sparse_step"`
	MLPOnly        []int `json:"mlp_only_layers"`
	Interleave     int   `json:"interleave_moe_layer_step"`
	InterDenseMLP  int   `json:"intermediate_size_mlp"`
	NumGroups      int   `json:"n_group"`
	TopGroups      int   `json:"topk_group"`
	PredictLayers  int   `json:"num_nextn_predict_layers"`
	SlidingWindow  int   `json:"sliding_window"`
	AttentionChunk int   `json:"attention_chunk_size"`

	LayerTypes []string `json:"layer_types"`
	NoRope     []int    `json:"no_rope_layers"`

	QRank  *int   `json:"q_lora_rank"`
	KVRank int    `json:"kv_lora_rank"`
	Nope   int    `json:"qk_nope_head_dim"`
	Rope   int    `json:"qk_rope_head_dim"`
	VDim   int    `json:"v_head_dim"`
	TopKBy string `json:"topk_method"`

	DType      string `json:"dtype"`
	TorchDType string `json:"torch_dtype"`

	Quant *struct {
		Method string `json:"quant_method"`
	} `json:"quantization_config"`
	Text *json.RawMessage `json:"text_config"`
}

// families lists what ParseConfig reads.
var families = []string{"qwen3_moe", "deepseek_v3", "kimi_k2", "mixtral", "llama4", "llama4_text", "gpt_oss"}

// maxLayers is far above any model; it keeps a broken file from being counted layer by layer.
const maxLayers = 1 << 14

// ParseConfig reads a Hugging Face config.json of the Qwen3-MoE, DeepSeek-V3, Kimi-K2, Mixtral, Llama-4 or gpt-oss family.
// Multi-modal files are read through their text_config. Dense models, unknown families and impossible sizes are errors.
func ParseConfig(data []byte) (Model, error) {
	var c hfConfig
	if err := json.Unmarshal(data, &c); err != nil {
		return Model{}, fmt.Errorf("plan: config.json: %w", err)
	}
	quant := c.Quant
	if c.Text != nil {
		outer := c
		c = hfConfig{}
		if err := json.Unmarshal(*outer.Text, &c); err != nil {
			return Model{}, fmt.Errorf("plan: config.json: text_config: %w", err)
		}
		if c.ModelType == "" {
			c.ModelType = outer.ModelType
		}
		c.NameOrPath, c.Architectures = outer.NameOrPath, outer.Architectures
	}
	if c.Quant != nil {
		quant = c.Quant
	}
	for _, d := range []string{c.DType, c.TorchDType} {
		if d != "" && d != "bfloat16" && d != "float16" {
			return Model{}, fmt.Errorf("plan: config.json: dtype %q; have bfloat16 and float16, or a quantization_config", d)
		}
	}
	if c.Layers > maxLayers || c.DenseFirst < 0 {
		return Model{}, fmt.Errorf("plan: config.json: %d layers, the first %d dense; want at most %d, and none negative", c.Layers,
			c.DenseFirst, maxLayers)
	}
	m := Model{Name: c.name(), Family: c.ModelType, Layers: c.Layers, Hidden: c.Hidden, Vocab: c.Vocab, Tied: c.Tied,
		MaxPosition: c.MaxPosition, TopK: max(c.TopK, c.TopKToken), Experts: max(c.Experts, c.LocalExperts, c.RoutedExperts),
		Attention: Attention{Heads: c.Heads, KVHeads: c.KVHeads, HeadDim: c.HeadDim, Bias: c.Bias}}
	if m.Attention.KVHeads == 0 {
		m.Attention.KVHeads = c.Heads
	}
	if m.Attention.HeadDim == 0 && c.Heads > 0 {
		m.Attention.HeadDim = c.Hidden / c.Heads
	}
	if err := c.family(&m); err != nil {
		return Model{}, err
	}
	if err := setFormat(&m, quant); err != nil {
		return Model{}, err
	}
	return m, m.Validate()
}

func (c *hfConfig) name() string {
	if c.NameOrPath != "" {
		return c.NameOrPath
	}
	if len(c.Architectures) > 0 {
		return c.Architectures[0]
	}
	return c.ModelType
}

func setFormat(m *Model, quant *struct {
	Method string `json:"quant_method"`
}) error {
	m.Format, m.ExpertFormat = BF16, BF16
	if quant == nil || quant.Method == "" {
		return nil
	}
	switch quant.Method {
	case "fp8":
		m.Format, m.ExpertFormat = FP8, FP8
	case "mxfp4":
		m.ExpertFormat = MXFP4
	default:
		return fmt.Errorf("plan: config.json: quant_method %q; have none (bf16), fp8, mxfp4", quant.Method)
	}
	return nil
}

func (c *hfConfig) family(m *Model) error {
	switch c.ModelType {
	case "qwen3_moe":
		return c.qwen(m)
	case "deepseek_v3", "kimi_k2":
		return c.deepSeek(m)
	case "mixtral":
		m.ExpertIntermediate = c.Intermediate
	case "llama4", "llama4_text":
		return c.llama4(m)
	case "gpt_oss":
		m.ExpertIntermediate = c.Intermediate
		m.ExpertBias, m.RouterBias = true, true
		m.Attention.Sinks, m.Attention.OutBias = true, c.Bias
		m.Attention.Window = c.SlidingWindow
		for _, t := range c.LayerTypes {
			if t == "sliding_attention" {
				m.Attention.WindowLayers++
			}
		}
		if c.LayerTypes == nil {
			m.Attention.WindowLayers = (c.Layers + 1) / 2
		}
	default:
		if max(c.Experts, c.LocalExperts, c.RoutedExperts) <= 1 {
			return fmt.Errorf("plan: config.json: model_type %q has no experts: it is dense, so there is nothing to plan for expert "+
				"parallelism; use tensor parallelism for latency and replicas for throughput", c.ModelType)
		}
		return fmt.Errorf("plan: config.json: unknown model_type %q; have %s", c.ModelType, strings.Join(families, ", "))
	}
	return nil
}

func (c *hfConfig) qwen(m *Model) error {
	m.ExpertIntermediate, m.DenseIntermediate, m.Attention.QKNorm = c.MoEInter, c.Intermediate, true
	only := map[int]bool{}
	for _, l := range c.MLPOnly {
		if l < 0 || l >= c.Layers {
			return fmt.Errorf("plan: config.json: mlp_only_layers names layer %d of %d", l, c.Layers)
		}
		only[l] = true
	}
	for l := range max(0, c.Layers) {
		if only[l] || c.SparseStep > 1 && (l+1)%c.SparseStep != 0 {
			m.DenseLayers++
		}
	}
	return nil
}

func (c *hfConfig) deepSeek(m *Model) error {
	m.ExpertIntermediate, m.DenseIntermediate = c.MoEInter, c.Intermediate
	m.SharedIntermediate = c.SharedExperts * c.MoEInter
	m.DenseLayers, m.Groups, m.TopGroups = c.DenseFirst, c.NumGroups, c.TopGroups
	m.RouterBias = c.TopKBy == "" || c.TopKBy == "noaux_tc"
	m.PredictLayersUnused = c.PredictLayers
	if c.MoEFreq > 1 {
		return fmt.Errorf("plan: config.json: moe_layer_freq %d is not supported; want 1", c.MoEFreq)
	}
	a := &m.Attention
	a.Kind, a.HeadDim, a.KVRank, a.NopeDim, a.RopeDim, a.VDim = MLA, 0, c.KVRank, c.Nope, c.Rope, c.VDim
	if c.QRank != nil {
		a.QRank = *c.QRank
	}
	return nil
}

func (c *hfConfig) llama4(m *Model) error {
	m.ExpertIntermediate, m.SharedIntermediate, m.DenseIntermediate = c.Intermediate, c.Intermediate, c.InterDenseMLP
	step := c.Interleave
	if step < 1 {
		return fmt.Errorf("plan: config.json: interleave_moe_layer_step %d; want 1 or more", step)
	}
	m.DenseLayers = c.Layers - c.Layers/step
	m.Attention.Window = c.AttentionChunk
	for l := range max(0, c.Layers) {
		local := (l+1)%4 != 0
		if l < len(c.NoRope) {
			local = c.NoRope[l] != 0
		}
		if local && c.AttentionChunk > 0 {
			m.Attention.WindowLayers++
		}
	}
	return nil
}
