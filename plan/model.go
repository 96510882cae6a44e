package plan

import (
	"fmt"
)

// AttentionKind says how keys and values are kept.
type AttentionKind uint8

// The kinds of attention.
const (
	GQA AttentionKind = iota // KVHeads heads of keys and values
	MLA                      // one latent vector for all heads (DeepSeek-V3, Kimi-K2)
)

// Attention is the shape of a model's attention.
type Attention struct {
	Kind                   AttentionKind
	Heads, KVHeads         int
	HeadDim                int  // of a query head (GQA)
	Bias, OutBias          bool // of q, k, v; of o
	QKNorm                 bool // a norm of [headDim] on q and on k
	Sinks                  bool // one learned value per head (gpt-oss)
	QRank, KVRank          int  // MLA: latent sizes; QRank 0 means a full query projection
	NopeDim, RopeDim, VDim int  // MLA: per head
	Window, WindowLayers   int  // layers that look back only Window tokens
}

// A Model is the shape of a Mixture-of-Experts transformer, as far as bytes, flops and collectives depend on it.
type Model struct {
	Name, Family        string
	Layers, Hidden      int
	Vocab               int
	Tied                bool // the output head is the input embedding
	Attention           Attention
	Experts, TopK       int
	ExpertIntermediate  int
	ExpertBias          bool // biases inside the experts (gpt-oss)
	RouterBias          bool // a bias of [numExperts] in the router
	SharedIntermediate  int  // of all shared experts together; 0 for none
	SharedGate          bool
	DenseLayers         int // layers with a dense FFN instead of experts
	DenseIntermediate   int
	Groups, TopGroups   int // node-limited routing; 0 for none
	Format              Format
	ExpertFormat        Format // of the expert matrices
	MaxPosition         int
	PublishedTotal      float64 // parameters as published, 0 if unknown
	PublishedActive     float64
	PublishedTotalNote  string
	PredictLayersUnused int // multi-token-prediction layers in the checkpoint that are not counted
}

// MoELayers returns the number of layers with experts.
func (m Model) MoELayers() int { return m.Layers - m.DenseLayers }

// Density returns the share of routed experts that a token uses.
func (m Model) Density() float64 { return float64(m.TopK) / float64(m.Experts) }

// Routing returns what decides where tokens go.
func (m Model) Routing() Routing { return Routing{m.Experts, m.TopK, m.Groups, m.TopGroups} }

// KVHeads returns the number of key/value heads that tensor parallelism can split: 1 for MLA.
func (m Model) KVHeads() int {
	if m.Attention.Kind == MLA {
		return 1
	}
	return m.Attention.KVHeads
}

// Validate returns an error for a shape that no model has: missing sizes, top-k above the number of experts, or no experts.
func (m Model) Validate() error {
	need := []struct {
		name string
		n    int
	}{{"layers", m.Layers}, {"hidden size", m.Hidden}, {"vocabulary", m.Vocab}, {"attention heads", m.Attention.Heads}}
	for _, f := range need {
		if f.n <= 0 {
			return fmt.Errorf("plan: model %q has no %s (%d)", m.Name, f.name, f.n)
		}
	}
	if m.Experts <= 1 || m.MoELayers() <= 0 {
		return fmt.Errorf("plan: model %q is dense (%d experts): there is no expert parallelism to plan; use tensor parallelism "+
			"for latency and replicas for throughput", m.Name, m.Experts)
	}
	if m.TopK < 1 || m.TopK > m.Experts {
		return fmt.Errorf("plan: model %q routes a token to %d of %d experts; want 1..%d", m.Name, m.TopK, m.Experts, m.Experts)
	}
	if m.ExpertIntermediate <= 0 {
		return fmt.Errorf("plan: model %q has no expert intermediate size", m.Name)
	}
	if m.DenseLayers > 0 && m.DenseIntermediate <= 0 {
		return fmt.Errorf("plan: model %q has %d dense layers and no dense intermediate size", m.Name, m.DenseLayers)
	}
	a := m.Attention
	if a.Kind == MLA && (a.KVRank <= 0 || a.NopeDim <= 0 || a.VDim <= 0) {
		return fmt.Errorf("plan: model %q has latent attention with kv rank %d, nope %d, v %d; all must be positive",
			m.Name, a.KVRank, a.NopeDim, a.VDim)
	}
	if a.Kind == GQA && (a.KVHeads <= 0 || a.HeadDim <= 0 || a.Heads%a.KVHeads != 0) {
		return fmt.Errorf("plan: model %q has %d query heads, %d key/value heads of %d; the second must divide the first",
			m.Name, a.Heads, a.KVHeads, a.HeadDim)
	}
	if m.Groups > 1 && (m.Experts%m.Groups != 0 || m.TopGroups < 1 || m.TopGroups > m.Groups) {
		return fmt.Errorf("plan: model %q: %d experts in %d groups, %d groups a token", m.Name, m.Experts, m.Groups, m.TopGroups)
	}
	return nil
}

// KVBytesPerToken returns the bytes that one cached token takes on one rank of a tp-way sharded replica, over layers layers:
// a key and a value for each of its max(1, kvHeads/tp) heads, or the latent vector, which tensor parallelism cannot split.
// The cache is bf16.
func (m Model) KVBytesPerToken(tp, layers int) int64 {
	a := m.Attention
	if a.Kind == MLA {
		return int64(layers) * int64(a.KVRank+a.RopeDim) * 2
	}
	return int64(layers) * int64(max(1, a.KVHeads/tp)) * int64(2*a.HeadDim) * 2
}

// KVBytes returns the bytes of a sequence of length tokens on one rank; layers with a window keep only the window.
func (m Model) KVBytes(length, tp int) int64 {
	a := m.Attention
	full := m.Layers - a.WindowLayers
	b := int64(length) * m.KVBytesPerToken(tp, full)
	if a.WindowLayers > 0 {
		b += int64(min(length, a.Window)) * m.KVBytesPerToken(tp, a.WindowLayers)
	}
	return b
}
