package checkpoint

import (
	"errors"
	"fmt"
)

// Validate looks up every tensor that the configuration calls for and returns the first that is missing or wrong. It
// opens all weight files but reads only their headers.
func (f *Folder) Validate() error {
	c := f.Config
	if err := f.want(Embedding, c.VocabSize, c.HiddenSize); err != nil {
		return err
	}
	if err := f.want(FinalNorm, c.HiddenSize); err != nil {
		return err
	}
	if !c.TieWordEmbeddings {
		err := f.want(LMHead, c.VocabSize, c.HiddenSize)
		if errors.Is(err, errNoTensor) {
			return fmt.Errorf("%w (tie_word_embeddings is false)", err)
		}
		if err != nil {
			return err
		}
	}
	for l := range c.NumHiddenLayers {
		if err := f.validateLayer(l); err != nil {
			return err
		}
	}
	return nil
}

func (f *Folder) want(name string, shape ...int) error {
	_, err := f.Tensor(name, shape...)
	return err
}

func (f *Folder) validateLayer(l int) error {
	c := f.Config
	q, kv := c.NumAttentionHeads*c.HeadDim, c.NumKeyValueHeads*c.HeadDim
	type part struct {
		name  string
		shape []int
	}
	parts := []part{
		{"input_layernorm", []int{c.HiddenSize}},
		{"self_attn.q_proj", []int{q, c.HiddenSize}},
		{"self_attn.k_proj", []int{kv, c.HiddenSize}},
		{"self_attn.v_proj", []int{kv, c.HiddenSize}},
		{"self_attn.o_proj", []int{c.HiddenSize, q}},
		{"self_attn.q_norm", []int{c.HeadDim}},
		{"self_attn.k_norm", []int{c.HeadDim}},
		{"post_attention_layernorm", []int{c.HiddenSize}},
	}
	if c.IsMoE(l) {
		parts = append(parts, part{"mlp.gate", []int{c.NumExperts, c.HiddenSize}})
	} else {
		for _, p := range mlpParts(c.IntermediateSize, c.HiddenSize) {
			parts = append(parts, part{"mlp." + p.name, p.shape[:]})
		}
	}
	for _, p := range parts {
		if err := f.want(LayerTensor(l, p.name), p.shape...); err != nil {
			return fmt.Errorf("layer %d of %d: %w", l, c.NumHiddenLayers, err)
		}
	}
	if !c.IsMoE(l) {
		return nil
	}
	for e := range c.NumExperts {
		for _, p := range mlpParts(c.MoEIntermediateSize, c.HiddenSize) {
			err := f.want(ExpertTensor(l, e, p.name), p.shape[:]...)
			if errors.Is(err, errNoTensor) {
				return fmt.Errorf("layer %d: expert %d of %d is missing: mlp.experts.%d.%s.weight: %w", l, e, c.NumExperts, e, p.name, err)
			}
			if err != nil {
				return fmt.Errorf("layer %d: expert %d of %d: %w", l, e, c.NumExperts, err)
			}
		}
	}
	return nil
}

type mlpPart struct {
	name  string
	shape [2]int // [out, in]
}

func mlpParts(intermediate, hidden int) [3]mlpPart {
	return [3]mlpPart{
		{"gate_proj", [2]int{intermediate, hidden}},
		{"up_proj", [2]int{intermediate, hidden}},
		{"down_proj", [2]int{hidden, intermediate}},
	}
}
