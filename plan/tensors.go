package plan

// Format is how weights are stored.
type Format string

// The formats of weights.
const (
	BF16   Format = "bf16"
	F32    Format = "f32"
	FP8    Format = "fp8"   // one byte each, one f32 scale per block of 128 x 128
	MXFP4  Format = "mxfp4" // 4 bits each, one byte of scale per 32
	INT4   Format = "int4"  // 4 bits each, one bf16 scale per 32
	block         = 128
	mxWide        = 32
	perKiB        = 1024
	perMiB        = perKiB * 1024
	perGiB        = perMiB * 1024
	bf16Sz        = 2
)

// Bytes returns the stored bytes of a matrix [rows, cols].
func (f Format) Bytes(rows, cols int64) int64 {
	n := rows * cols
	switch f {
	case F32:
		return 4 * n
	case FP8:
		return n + 4*ceil(rows, block)*ceil(cols, block)
	case MXFP4:
		return n/2 + rows*ceil(cols, mxWide)
	case INT4:
		return n/2 + 2*rows*ceil(cols, mxWide)
	}
	return bf16Sz * n
}

func ceil(n, d int64) int64 { return (n + d - 1) / d }

// Shard says how tensor or expert parallelism splits a tensor.
type Shard uint8

// The ways to split.
const (
	Replicated Shard = iota
	ByHeads          // rows (or columns) over query heads, by tp
	ByKVHeads        // rows over key/value heads, by tp; copies when tp > heads
	BySize           // an intermediate size, by tp
	ByVocab          // vocabulary rows, by tp, the last rank padded
	ByExperts        // whole experts over all ranks, or every expert's intermediate size
)

// Part says which part of the model a tensor belongs to.
type Part string

// The parts of a model.
const (
	PartEmbedding Part = "embedding"
	PartHead      Part = "head"
	PartAttention Part = "attention"
	PartNorm      Part = "norm"
	PartRouter    Part = "router"
	PartShared    Part = "shared expert"
	PartDense     Part = "dense ffn"
	PartExperts   Part = "experts"
)

// A Tensor is a kind of weight: Count equal tensors [Rows, Cols] over the whole model.
type Tensor struct {
	Name       string
	Part       Part
	Layers     int // layers that have it; 0: outside of the layers
	Each       int // of them per layer, or in all when Layers is 0
	Rows, Cols int
	SplitCols  bool // the sharded dimension is Cols (row-parallel), else Rows
	Shard      Shard
	Format     Format
}

// Count returns how many such tensors the model has.
func (t Tensor) Count() int64 { return int64(max(1, t.Layers)) * int64(t.Each) }

// Params returns the parameters of all of them.
func (t Tensor) Params() int64 { return t.Count() * int64(t.Rows) * int64(t.Cols) }

// Bytes returns the stored bytes of all of them.
func (t Tensor) Bytes() int64 { return t.Count() * t.Format.Bytes(int64(t.Rows), int64(t.Cols)) }

// Tensors lists the model's weights; their Params sum to the published total.
func (m Model) Tensors() []Tensor {
	L, H := m.Layers, m.Hidden
	ts := []Tensor{{"embed_tokens", PartEmbedding, 0, 1, m.Vocab, H, false, ByVocab, BF16}}
	if !m.Tied {
		ts = append(ts, Tensor{"lm_head", PartHead, 0, 1, m.Vocab, H, false, ByVocab, BF16})
	}
	ts = append(ts, Tensor{"final_norm", PartNorm, 0, 1, H, 1, false, Replicated, BF16},
		Tensor{"layer norms", PartNorm, L, 2, H, 1, false, Replicated, BF16})
	if m.Attention.Kind == MLA {
		ts = append(ts, m.mlaTensors()...)
	} else {
		ts = append(ts, m.gqaTensors()...)
	}
	return append(ts, m.ffnTensors()...)
}

func (m Model) gqaTensors() []Tensor {
	a, L, H := m.Attention, m.Layers, m.Hidden
	q, kv := a.Heads*a.HeadDim, a.KVHeads*a.HeadDim
	ts := []Tensor{
		{"q_proj", PartAttention, L, 1, q, H, false, ByHeads, m.Format},
		{"k_proj, v_proj", PartAttention, L, 2, kv, H, false, ByKVHeads, m.Format},
		{"o_proj", PartAttention, L, 1, H, q, true, ByHeads, m.Format},
	}
	if a.Bias {
		ts = append(ts, Tensor{"q bias", PartAttention, L, 1, q, 1, false, ByHeads, BF16},
			Tensor{"k, v bias", PartAttention, L, 2, kv, 1, false, ByKVHeads, BF16})
	}
	if a.OutBias {
		ts = append(ts, Tensor{"o bias", PartAttention, L, 1, H, 1, false, Replicated, BF16})
	}
	if a.QKNorm {
		ts = append(ts, Tensor{"q_norm, k_norm", PartNorm, L, 2, a.HeadDim, 1, false, Replicated, BF16})
	}
	if a.Sinks {
		ts = append(ts, Tensor{"sinks", PartAttention, L, 1, a.Heads, 1, false, ByHeads, BF16})
	}
	return ts
}

func (m Model) mlaTensors() []Tensor {
	a, L, H := m.Attention, m.Layers, m.Hidden
	qWide := a.Heads * (a.NopeDim + a.RopeDim)
	ts := []Tensor{
		{"kv_a_proj", PartAttention, L, 1, a.KVRank + a.RopeDim, H, false, Replicated, m.Format},
		{"kv_a_norm", PartNorm, L, 1, a.KVRank, 1, false, Replicated, BF16},
		{"kv_b_proj", PartAttention, L, 1, a.Heads * (a.NopeDim + a.VDim), a.KVRank, false, ByHeads, m.Format},
		{"o_proj", PartAttention, L, 1, H, a.Heads * a.VDim, true, ByHeads, m.Format},
	}
	if a.QRank == 0 {
		return append(ts, Tensor{"q_proj", PartAttention, L, 1, qWide, H, false, ByHeads, m.Format})
	}
	return append(ts,
		Tensor{"q_a_proj", PartAttention, L, 1, a.QRank, H, false, Replicated, m.Format},
		Tensor{"q_a_norm", PartNorm, L, 1, a.QRank, 1, false, Replicated, BF16},
		Tensor{"q_b_proj", PartAttention, L, 1, qWide, a.QRank, false, ByHeads, m.Format})
}

func (m Model) ffnTensors() []Tensor {
	L, H, I := m.MoELayers(), m.Hidden, m.ExpertIntermediate
	ts := []Tensor{{"router", PartRouter, L, 1, m.Experts, H, false, Replicated, BF16}}
	if m.RouterBias {
		f := F32
		if m.ExpertBias {
			f = BF16
		}
		ts = append(ts, Tensor{"router bias", PartRouter, L, 1, m.Experts, 1, false, Replicated, f})
	}
	ts = append(ts,
		Tensor{"experts gate, up", PartExperts, L, 2 * m.Experts, I, H, false, ByExperts, m.ExpertFormat},
		Tensor{"experts down", PartExperts, L, m.Experts, H, I, true, ByExperts, m.ExpertFormat})
	if m.ExpertBias {
		ts = append(ts, Tensor{"experts gate, up bias", PartExperts, L, 2 * m.Experts, I, 1, false, ByExperts, BF16},
			Tensor{"experts down bias", PartExperts, L, m.Experts, 1, H, false, ByExperts, BF16})
	}
	if s := m.SharedIntermediate; s > 0 {
		ts = append(ts, Tensor{"shared gate, up", PartShared, L, 2, s, H, false, BySize, m.Format},
			Tensor{"shared down", PartShared, L, 1, H, s, true, BySize, m.Format})
		if m.SharedGate {
			ts = append(ts, Tensor{"shared gate vector", PartShared, L, 1, 1, H, false, Replicated, BF16})
		}
	}
	if m.DenseLayers > 0 {
		ts = append(ts, Tensor{"dense gate, up", PartDense, m.DenseLayers, 2, m.DenseIntermediate, H, false, BySize, m.Format},
			Tensor{"dense down", PartDense, m.DenseLayers, 1, H, m.DenseIntermediate, true, BySize, m.Format})
	}
	return ts
}

// Params counts a model's parameters.
type Params struct {
	Total             int64 `json:"total"`
	Routed            int64 `json:"routed"`
	Rest              int64 `json:"rest"`                // everything that is not a routed expert
	PerExpert         int64 `json:"per_expert"`          // one expert of one layer
	Active            int64 `json:"active"`              // used by one token, both embeddings counted
	ActiveNoEmbedding int64 `json:"active_no_embedding"` // the input embedding (a table look-up) not counted
}

// Params returns the parameter counts.
func (m Model) Params() Params {
	var p Params
	var embedding int64
	for _, t := range m.Tensors() {
		n := t.Params()
		p.Total += n
		switch t.Part {
		case PartExperts:
			p.Routed += n
		case PartEmbedding:
			embedding = n
		}
	}
	p.Rest = p.Total - p.Routed
	p.PerExpert = p.Routed / int64(m.MoELayers()) / int64(m.Experts)
	p.Active = p.Rest + p.Routed/int64(m.Experts)*int64(m.TopK)
	p.ActiveNoEmbedding = p.Active
	if !m.Tied {
		p.ActiveNoEmbedding -= embedding
	}
	return p
}

// WeightBytes returns the bytes of all weights, each stored once.
func (m Model) WeightBytes() int64 {
	var b int64
	for _, t := range m.Tensors() {
		b += t.Bytes()
	}
	return b
}
