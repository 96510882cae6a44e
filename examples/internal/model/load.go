package model

import (
	"fmt"
	"math"

	"github.com/weftgo/weft/examples/internal/checkpoint"
	"github.com/weftgo/weft/examples/internal/safetensors"
	"github.com/weftgo/weft/internal/gemm"
	"github.com/weftgo/weft/moe"
)

// loader reads this rank's parts of the weights.
type loader struct {
	folder *checkpoint.Folder
}

// rows reads rows [r.lo, r.hi) of a matrix [n, k] into dst, or into new memory if dst is nil.
func (l *loader) rows(dst []float32, name string, n, k int, r span) ([]float32, error) {
	return l.rectangle(dst, name, n, k, r, span{0, k})
}

// columns reads columns [c.lo, c.hi) of a matrix [n, k].
func (l *loader) columns(dst []float32, name string, n, k int, c span) ([]float32, error) {
	return l.rectangle(dst, name, n, k, span{0, n}, c)
}

func (l *loader) rectangle(dst []float32, name string, n, k int, r, c span) ([]float32, error) {
	t, err := l.folder.Tensor(name, n, k)
	if err != nil {
		return nil, err
	}
	if size := r.len() * c.len(); cap(dst) < size {
		dst = make([]float32, size)
	} else {
		dst = dst[:size]
	}
	if err := safetensors.Float32(dst, t, r.lo, r.hi, c.lo, c.hi); err != nil {
		return nil, fmt.Errorf("model: %w", err)
	}
	return dst, nil
}

func (l *loader) vector(name string, n int) ([]float32, error) {
	t, err := l.folder.Tensor(name, n)
	if err != nil {
		return nil, err
	}
	v := make([]float32, n)
	if err := safetensors.Float32(v, t, 0, 1, 0, n); err != nil {
		return nil, fmt.Errorf("model: %w", err)
	}
	return v, nil
}

// loadLayer reads layer i of m.
func (m *Model) loadLayer(l *loader, i int) (*layer, error) {
	c := m.model
	y := &layer{index: i, cache: m.geo.newCache()}
	for _, v := range []struct {
		dst  *[]float32
		name string
		n    int
	}{
		{&y.inputNorm, "input_layernorm", c.HiddenSize},
		{&y.postNorm, "post_attention_layernorm", c.HiddenSize},
		{&y.queryNorm, "self_attn.q_norm", c.HeadDim},
		{&y.keyNorm, "self_attn.k_norm", c.HeadDim},
	} {
		w, err := l.vector(checkpoint.LayerTensor(i, v.name), v.n)
		if err != nil {
			return nil, err
		}
		*v.dst = w
	}
	// The scale of the scores goes into the weight that every query is multiplied by anyway.
	scale := float32(1 / math.Sqrt(float64(c.HeadDim)))
	for j := range y.queryNorm {
		y.queryNorm[j] *= scale
	}
	if err := m.loadAttention(l, y); err != nil {
		return nil, err
	}
	if c.IsMoE(i) {
		return y, nil // New makes y.moe
	}
	return y, m.loadDense(l, y)
}

// loadAttention packs the query, key and value rows of this rank's heads into one weight, and the columns of the output
// projection.
func (m *Model) loadAttention(l *loader, y *layer) error {
	c := m.model
	d, h := c.HeadDim, c.HiddenSize
	q := span{m.heads.lo * d, m.heads.hi * d}
	w := make([]float32, 0, m.qkvWidth()*h)
	add := func(name string, n int, r span) error {
		part, err := l.rows(nil, checkpoint.LayerTensor(y.index, "self_attn."+name), n, h, r)
		w = append(w, part...)
		return err
	}
	if err := add("q_proj", c.NumAttentionHeads*d, q); err != nil {
		return err
	}
	for _, name := range []string{"k_proj", "v_proj"} {
		for _, g := range m.groups {
			if err := add(name, c.NumKeyValueHeads*d, span{g.kv * d, (g.kv + 1) * d}); err != nil {
				return err
			}
		}
	}
	y.qkv = gemm.Pack(w, m.qkvWidth(), h, h)
	o, err := l.columns(nil, checkpoint.LayerTensor(y.index, "self_attn.o_proj"), h, c.NumAttentionHeads*d, q)
	if err != nil {
		return err
	}
	y.out = gemm.Pack(o, h, q.len(), q.len())
	return nil
}

// loadDense packs this rank's slice of a dense MLP: gate and up rows in one weight, and the columns of down.
func (m *Model) loadDense(l *loader, y *layer) error {
	c := m.model
	n, h := c.IntermediateSize, c.HiddenSize
	s := m.dense
	gate, err := l.rows(nil, checkpoint.LayerTensor(y.index, "mlp.gate_proj"), n, h, s)
	if err != nil {
		return err
	}
	up, err := l.rows(nil, checkpoint.LayerTensor(y.index, "mlp.up_proj"), n, h, s)
	if err != nil {
		return err
	}
	down, err := l.columns(nil, checkpoint.LayerTensor(y.index, "mlp.down_proj"), h, n, s)
	if err != nil {
		return err
	}
	y.gateUp = gemm.Pack(append(gate, up...), 2*s.len(), h, h)
	y.down = gemm.Pack(down, h, s.len(), s.len())
	return nil
}

// expertLoader returns the function that hands moe this rank's experts of layer i: whole ones where own maps a local number to
// an expert, or the slice cut of every expert.
func (m *Model) expertLoader(l *loader, i int, own func(local int) int, cut span) func(int) (moe.Expert, error) {
	c := m.model
	n, h := c.MoEIntermediateSize, c.HiddenSize
	var x moe.Expert // its memory serves every expert in turn
	return func(local int) (moe.Expert, error) {
		e := own(local)
		var err error
		if x.Gate, err = l.rows(x.Gate, checkpoint.ExpertTensor(i, e, "gate_proj"), n, h, cut); err != nil {
			return x, err
		}
		if x.Up, err = l.rows(x.Up, checkpoint.ExpertTensor(i, e, "up_proj"), n, h, cut); err != nil {
			return x, err
		}
		x.Down, err = l.columns(x.Down, checkpoint.ExpertTensor(i, e, "down_proj"), h, n, cut)
		return x, err
	}
}

// loadHead packs this rank's rows of the output head and finds the embedding.
func (m *Model) loadHead(l *loader) error {
	c := m.model
	var err error
	if m.embedding, err = l.folder.Tensor(checkpoint.Embedding, c.VocabSize, c.HiddenSize); err != nil {
		return err
	}
	if m.finalNorm, err = l.vector(checkpoint.FinalNorm, c.HiddenSize); err != nil {
		return err
	}
	name := checkpoint.LMHead
	if c.TieWordEmbeddings {
		name = checkpoint.Embedding
	}
	w, err := l.rows(nil, name, c.VocabSize, c.HiddenSize, m.vocab)
	if err != nil {
		return err
	}
	m.head = gemm.Pack(w, m.vocab.len(), c.HiddenSize, c.HiddenSize)
	return nil
}
