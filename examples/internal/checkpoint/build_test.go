package checkpoint

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

// tiny is the config.json of a model of 2 layers, the first dense, with 2 experts.
func tiny() map[string]any {
	return map[string]any{
		"architectures": []string{architecture}, "hidden_size": 4, "num_hidden_layers": 2, "num_attention_heads": 2,
		"num_key_value_heads": 1, "intermediate_size": 3, "moe_intermediate_size": 2, "num_experts": 2,
		"num_experts_per_tok": 1, "mlp_only_layers": []int{0}, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
		"vocab_size": 5, "max_position_embeddings": 16, "hidden_act": "silu",
	}
}

// tensorSpec is a tensor to write; its elements count up from first.
type tensorSpec struct {
	dtype string
	shape []int
	first int
}

func tinyTensors() map[string]tensorSpec {
	t := map[string]tensorSpec{
		Embedding: {"BF16", []int{5, 4}, 0}, LMHead: {"F32", []int{5, 4}, 100}, FinalNorm: {"F16", []int{4}, 0},
	}
	for l := range 2 {
		for part, shape := range map[string][]int{
			"input_layernorm": {4}, "post_attention_layernorm": {4}, "self_attn.q_norm": {2}, "self_attn.k_norm": {2},
			"self_attn.q_proj": {4, 4}, "self_attn.k_proj": {2, 4}, "self_attn.v_proj": {2, 4}, "self_attn.o_proj": {4, 4},
		} {
			t[LayerTensor(l, part)] = tensorSpec{"BF16", shape, 0}
		}
	}
	t[LayerTensor(0, "mlp.gate_proj")] = tensorSpec{"BF16", []int{3, 4}, 0}
	t[LayerTensor(0, "mlp.up_proj")] = tensorSpec{"BF16", []int{3, 4}, 0}
	t[LayerTensor(0, "mlp.down_proj")] = tensorSpec{"BF16", []int{4, 3}, 0}
	t[LayerTensor(1, "mlp.gate")] = tensorSpec{"BF16", []int{2, 4}, 0}
	for e := range 2 {
		t[ExpertTensor(1, e, "gate_proj")] = tensorSpec{"BF16", []int{2, 4}, 16 * e}
		t[ExpertTensor(1, e, "up_proj")] = tensorSpec{"BF16", []int{2, 4}, 16*e + 8}
		t[ExpertTensor(1, e, "down_proj")] = tensorSpec{"BF16", []int{4, 2}, 8 * e}
	}
	return t
}

// weightBytes writes a safetensors file.
func weightBytes(t testing.TB, tensors map[string]tensorSpec) []byte {
	t.Helper()
	header := make(map[string]any)
	var body []byte
	for _, name := range slices.Sorted(maps.Keys(tensors)) {
		s, begin, n := tensors[name], len(body), 1
		for _, d := range s.shape {
			n *= d
		}
		for i := s.first; i < s.first+n; i++ {
			bits := math.Float32bits(float32(i))
			switch s.dtype {
			case "F32":
				body = binary.LittleEndian.AppendUint32(body, bits)
			case "I8":
				body = append(body, byte(i))
			default:
				body = binary.LittleEndian.AppendUint16(body, uint16(bits>>16))
			}
		}
		header[name] = map[string]any{"dtype": s.dtype, "shape": s.shape, "data_offsets": []int{begin, len(body)}}
	}
	head := jsonBytes(t, header)
	out := binary.LittleEndian.AppendUint64(nil, uint64(len(head)))
	return slices.Concat(out, head, body)
}

func jsonBytes(t testing.TB, v any) []byte {
	t.Helper()
	data, err := json.Marshal(v)
	require.NoError(t, err)
	return data
}

// folder is a file system with a config and one weight file.
func folder(t testing.TB, config map[string]any, tensors map[string]tensorSpec) fstest.MapFS {
	return fstest.MapFS{
		configFile:  {Data: jsonBytes(t, config)},
		weightsFile: {Data: weightBytes(t, tensors)},
	}
}

// sharded splits the tensors over n files with an index.
func sharded(t testing.TB, n int) (fsys fstest.MapFS, index map[string]string) {
	t.Helper()
	fsys = fstest.MapFS{configFile: {Data: jsonBytes(t, tiny())}}
	index = make(map[string]string)
	parts := make([]map[string]tensorSpec, n)
	all := tinyTensors()
	for i, name := range slices.Sorted(maps.Keys(all)) {
		k := i % n
		if parts[k] == nil {
			parts[k] = make(map[string]tensorSpec)
		}
		parts[k][name] = all[name]
		index[name] = shardName(k, n)
	}
	for k := range n {
		fsys[shardName(k, n)] = &fstest.MapFile{Data: weightBytes(t, parts[k])}
	}
	setIndex(t, fsys, index)
	return fsys, index
}

func setIndex(t testing.TB, fsys fstest.MapFS, index map[string]string) {
	fsys[indexFile] = &fstest.MapFile{Data: jsonBytes(t, map[string]any{"metadata": map[string]int{"total_size": 1}, "weight_map": index})}
}

func shardName(k, n int) string { return fmt.Sprintf("model-%05d-of-%05d.safetensors", k+1, n) }

func sameBytes(t testing.TB, want, got []byte) {
	t.Helper()
	require.True(t, bytes.Equal(want, got))
}
