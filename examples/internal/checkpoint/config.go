package checkpoint

import (
	"encoding/json"
	"fmt"
	"slices"
)

// Config is the part of config.json that decides what the model computes.
type Config struct {
	HiddenSize            int
	NumHiddenLayers       int
	NumAttentionHeads     int
	NumKeyValueHeads      int
	HeadDim               int     // of queries, keys and values; need not be HiddenSize / NumAttentionHeads
	IntermediateSize      int     // of dense layers; 0 if there are none and the file has none
	MoEIntermediateSize   int     // of each expert
	NumExperts            int     // 0: all layers are dense
	NumExpertsPerTok      int     // the k of top-k
	NormTopKProb          bool    // the k weights are scaled to sum to 1
	DecoderSparseStep     int     // layer i may be MoE if it divides i+1
	MLPOnlyLayers         []int   // dense in any case
	RMSNormEps            float64 // added to the mean square
	RopeTheta             float64 // base of the rotary frequencies
	VocabSize             int
	MaxPositionEmbeddings int    // prompt and completion together
	TieWordEmbeddings     bool   // the LM head is the embedding; the file has no lm_head.weight
	DType                 string // of the weights as the file says, such as "bfloat16"; may be ""
	EOSTokenIDs           []int32
}

// IsMoE says whether the layer, counted from 0, has a router and experts.
func (c *Config) IsMoE(layer int) bool {
	return c.NumExperts > 0 && (layer+1)%c.DecoderSparseStep == 0 && !slices.Contains(c.MLPOnlyLayers, layer)
}

// configJSON has pointers for fields whose absence matters.
type configJSON struct {
	Architectures         []string        `json:"architectures"`
	HiddenSize            *int            `json:"hidden_size"`
	NumHiddenLayers       *int            `json:"num_hidden_layers"`
	NumAttentionHeads     *int            `json:"num_attention_heads"`
	NumKeyValueHeads      *int            `json:"num_key_value_heads"`
	HeadDim               *int            `json:"head_dim"`
	IntermediateSize      *int            `json:"intermediate_size"`
	MoEIntermediateSize   *int            `json:"moe_intermediate_size"`
	NumExperts            *int            `json:"num_experts"`
	NumExpertsPerTok      *int            `json:"num_experts_per_tok"`
	NormTopKProb          bool            `json:"norm_topk_prob"`
	DecoderSparseStep     *int            `json:"decoder_sparse_step"`
	MLPOnlyLayers         []int           `json:"mlp_only_layers"`
	RMSNormEps            *float64        `json:"rms_norm_eps"`
	RopeTheta             *float64        `json:"rope_theta"`
	RopeScaling           json.RawMessage `json:"rope_scaling"`
	RopeParameters        json.RawMessage `json:"rope_parameters"`
	PartialRotaryFactor   *float64        `json:"partial_rotary_factor"`
	VocabSize             *int            `json:"vocab_size"`
	MaxPositionEmbeddings *int            `json:"max_position_embeddings"`
	TieWordEmbeddings     bool            `json:"tie_word_embeddings"`
	AttentionBias         bool            `json:"attention_bias"`
	HiddenAct             *string         `json:"hidden_act"`
	UseSlidingWindow      bool            `json:"use_sliding_window"`
	SlidingWindow         *int            `json:"sliding_window"`
	LayerTypes            []string        `json:"layer_types"`
	TorchDType            string          `json:"torch_dtype"`
	DType                 string          `json:"dtype"`
	QuantizationConfig    json.RawMessage `json:"quantization_config"`
	EOSTokenID            json.RawMessage `json:"eos_token_id"`
}

const architecture = "Qwen3MoeForCausalLM"

// ParseConfig reads a config.json; the name appears in errors.
func ParseConfig(data []byte, name string) (*Config, error) {
	c, err := parseConfig(data)
	if err != nil {
		return nil, fmt.Errorf("checkpoint: %s: %w", name, err)
	}
	return c, nil
}

func parseConfig(data []byte) (*Config, error) {
	var j configJSON
	if err := json.Unmarshal(data, &j); err != nil {
		return nil, jsonError(err, len(data))
	}
	if err := j.refuse(); err != nil {
		return nil, err
	}
	c, err := j.config()
	if err != nil {
		return nil, err
	}
	if c.RopeTheta, err = j.ropeTheta(); err != nil {
		return nil, err
	}
	if c.EOSTokenIDs, err = tokenIDs(j.EOSTokenID); err != nil {
		return nil, err
	}
	return c, c.check()
}

// config copies the fields and their defaults, which are those of the architecture.
func (j *configJSON) config() (*Config, error) {
	c := &Config{
		NormTopKProb:      j.NormTopKProb,
		DecoderSparseStep: 1,
		MLPOnlyLayers:     j.MLPOnlyLayers,
		TieWordEmbeddings: j.TieWordEmbeddings,
		DType:             j.DType, // newer files; older ones say torch_dtype
	}
	if c.DType == "" {
		c.DType = j.TorchDType
	}
	for _, f := range []struct {
		name string
		from *int
		to   *int
	}{
		{"hidden_size", j.HiddenSize, &c.HiddenSize},
		{"num_hidden_layers", j.NumHiddenLayers, &c.NumHiddenLayers},
		{"num_attention_heads", j.NumAttentionHeads, &c.NumAttentionHeads},
		{"num_key_value_heads", j.NumKeyValueHeads, &c.NumKeyValueHeads},
		{"vocab_size", j.VocabSize, &c.VocabSize},
		{"max_position_embeddings", j.MaxPositionEmbeddings, &c.MaxPositionEmbeddings},
		{"num_experts", j.NumExperts, &c.NumExperts},
	} {
		if f.from == nil {
			return nil, fmt.Errorf("no field %q", f.name)
		}
		if *f.from < 1 && !(f.name == "num_experts" && *f.from == 0) {
			return nil, fmt.Errorf("%s is %d, want at least 1", f.name, *f.from)
		}
		if *f.from > maxSize {
			return nil, fmt.Errorf("%s is %d > limit %d", f.name, *f.from, maxSize)
		}
		*f.to = *f.from
	}
	if c.NumHiddenLayers > maxLayers {
		return nil, fmt.Errorf("num_hidden_layers is %d > limit %d", c.NumHiddenLayers, maxLayers)
	}
	if j.RMSNormEps == nil {
		return nil, fmt.Errorf("no field %q", "rms_norm_eps")
	}
	c.RMSNormEps = *j.RMSNormEps
	c.HeadDim = c.HiddenSize / c.NumAttentionHeads
	if j.HeadDim == nil && c.HiddenSize%c.NumAttentionHeads != 0 {
		return nil, fmt.Errorf("no field %q, and hidden_size %d is not a multiple of num_attention_heads %d",
			"head_dim", c.HiddenSize, c.NumAttentionHeads)
	}
	set(&c.HeadDim, j.HeadDim)
	set(&c.DecoderSparseStep, j.DecoderSparseStep)
	set(&c.IntermediateSize, j.IntermediateSize)
	set(&c.MoEIntermediateSize, j.MoEIntermediateSize)
	set(&c.NumExpertsPerTok, j.NumExpertsPerTok)
	return c, c.checkLayers(j)
}

func set(to, from *int) {
	if from != nil {
		*to = *from
	}
}

// checkLayers asks for the sizes that the kinds of layers in the model need.
func (c *Config) checkLayers(j *configJSON) error {
	if c.DecoderSparseStep < 1 {
		return fmt.Errorf("decoder_sparse_step is %d, want at least 1", c.DecoderSparseStep)
	}
	for i, l := range c.MLPOnlyLayers {
		if l < 0 || l >= c.NumHiddenLayers {
			return fmt.Errorf("mlp_only_layers[%d] is %d, but there are only %d layers", i, l, c.NumHiddenLayers)
		}
	}
	numMoE := 0
	for l := range c.NumHiddenLayers {
		if c.IsMoE(l) {
			numMoE++
		}
	}
	need := func(name string, v *int, num int, kind string) error {
		switch {
		case num == 0:
			return nil
		case v == nil:
			return fmt.Errorf("no field %q, which %d %s layers need", name, num, kind)
		case *v < 1 || *v > maxSize:
			return fmt.Errorf("%s is %d, want 1 to %d", name, *v, maxSize)
		}
		return nil
	}
	if err := need("intermediate_size", j.IntermediateSize, c.NumHiddenLayers-numMoE, "dense"); err != nil {
		return err
	}
	if err := need("moe_intermediate_size", j.MoEIntermediateSize, numMoE, "MoE"); err != nil {
		return err
	}
	return need("num_experts_per_tok", j.NumExpertsPerTok, numMoE, "MoE")
}

// Bounds on sizes, so that products of two or three of them stay far from overflow.
const (
	maxSize   = 1 << 20
	maxLayers = 1 << 12
)

// check compares sizes with each other.
func (c *Config) check() error {
	switch {
	case c.NumAttentionHeads%c.NumKeyValueHeads != 0:
		return fmt.Errorf("num_attention_heads %d is not a multiple of num_key_value_heads %d", c.NumAttentionHeads, c.NumKeyValueHeads)
	case c.HeadDim < 2 || c.HeadDim%2 != 0 || c.HeadDim > maxSize:
		return fmt.Errorf("head_dim is %d, want an even number: rotary positions turn pairs", c.HeadDim)
	case c.NumExperts > 0 && c.NumExpertsPerTok > c.NumExperts:
		return fmt.Errorf("num_experts_per_tok %d > num_experts %d", c.NumExpertsPerTok, c.NumExperts)
	case !(c.RMSNormEps >= 0 && c.RMSNormEps < 1):
		return fmt.Errorf("rms_norm_eps is %v, want 0 to 1", c.RMSNormEps)
	case !(c.RopeTheta > 0):
		return fmt.Errorf("rope_theta is %v, want more than 0", c.RopeTheta)
	}
	return nil
}
