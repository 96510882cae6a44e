package checkpoint

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/weftgo/weft/examples/internal/safetensors"
)

// Names of the tensors outside of layers. Matrices are [out, in].
const (
	Embedding = "model.embed_tokens.weight" // [vocab, hidden]
	FinalNorm = "model.norm.weight"         // [hidden]
	LMHead    = "lm_head.weight"            // [vocab, hidden]; not in the file when tied to the embedding
)

// LayerTensor returns the name of a tensor of the layer, such as LayerTensor(2, "self_attn.q_proj").
func LayerTensor(layer int, part string) string {
	return "model.layers." + strconv.Itoa(layer) + "." + part + ".weight"
}

// ExpertTensor returns the name of an expert's matrix: part is gate_proj, up_proj or down_proj.
func ExpertTensor(layer, expert int, part string) string {
	return LayerTensor(layer, "mlp.experts."+strconv.Itoa(expert)+"."+part)
}

// Tensor returns the named tensor, which must have the shape and hold F32, BF16 or F16. Its data is that of the
// file, valid until Close.
//
// Files of transformers 5 may hold all experts of a layer in two tensors, mlp.experts.gate_up_proj
// [numExperts, 2*intermediate, hidden], gate rows first, and mlp.experts.down_proj [numExperts, hidden, intermediate].
// In such a folder the names of [ExpertTensor] give the parts.
func (f *Folder) Tensor(name string, shape ...int) (safetensors.Tensor, error) {
	t, err := f.tensor(name, shape)
	if err != nil {
		return t, fmt.Errorf("checkpoint: %w", err)
	}
	return t, nil
}

func (f *Folder) tensor(name string, shape []int) (safetensors.Tensor, error) {
	t, err := f.weights.find(name)
	if errors.Is(err, errNoTensor) {
		fused, ok, fusedErr := f.fusedExpert(name)
		if fusedErr != nil {
			return fused, fusedErr
		}
		if ok {
			t, err = fused, nil
		}
	}
	if err != nil {
		return t, err
	}
	if !slices.Equal(t.Shape, shape) {
		return t, fmt.Errorf("%s: tensor %q has shape %v, want %v by config.json", f.name, name, t.Shape, shape)
	}
	switch t.DType {
	case safetensors.F32, safetensors.BF16, safetensors.F16:
		return t, nil
	}
	return t, fmt.Errorf("%s: tensor %q has dtype %s, want F32, BF16 or F16", f.name, name, t.DType)
}

// fusedExpert cuts an expert's matrix out of the tensor that holds those of all experts of the layer, if the folder
// has one.
func (f *Folder) fusedExpert(name string) (t safetensors.Tensor, ok bool, err error) {
	const mark = ".mlp.experts."
	at := strings.Index(name, mark)
	if at < 0 {
		return t, false, nil
	}
	number, part, _ := strings.Cut(name[at+len(mark):], ".")
	expert, err := strconv.Atoi(number)
	if err != nil {
		return t, false, nil
	}
	c := f.Config
	whole, rows := name[:at+len(mark)], 0
	want := []int{c.NumExperts, 2 * c.MoEIntermediateSize, c.HiddenSize}
	switch part {
	case "gate_proj.weight":
		whole += "gate_up_proj"
	case "up_proj.weight":
		whole, rows = whole+"gate_up_proj", c.MoEIntermediateSize
	case "down_proj.weight":
		whole += "down_proj"
		want = []int{c.NumExperts, c.HiddenSize, c.MoEIntermediateSize}
	default:
		return t, false, nil
	}
	if !f.weights.has(whole) || expert < 0 || expert >= c.NumExperts {
		return t, false, nil
	}
	if t, err = f.weights.find(whole); err != nil {
		return t, false, err
	}
	if !slices.Equal(t.Shape, want) {
		return t, false, fmt.Errorf("%s: tensor %q has shape %v, want %v by config.json", f.name, whole, t.Shape, want)
	}
	t = t.Index(expert)
	if part != "down_proj.weight" {
		t = t.Slice(rows, rows+c.MoEIntermediateSize)
	}
	t.Name = name
	return t, true, nil
}
