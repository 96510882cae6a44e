package checkpoint

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/examples/internal/safetensors"
)

const judgeDir = "../bundled/judge-moe"

func TestOddValidates(t *testing.T) {
	mapped, err := Open("testdata/odd-a")
	require.NoError(t, err)
	defer func() { require.NoError(t, mapped.Close()) }()
	require.NoError(t, mapped.Validate())
	require.False(t, mapped.HasTokenizer())
	_, err = mapped.Tokenizer()
	require.ErrorIs(t, err, fs.ErrNotExist)
	template, err := mapped.ChatTemplate()
	require.NoError(t, err)
	require.Empty(t, template)

	read, err := OpenFS(os.DirFS("testdata/odd-a"), "odd")
	require.NoError(t, err)
	require.NoError(t, read.Validate())
	name := ExpertTensor(1, 7, "down_proj")
	a, err := mapped.Tensor(name, 72, 40)
	require.NoError(t, err)
	b, err := read.Tensor(name, 72, 40)
	require.NoError(t, err)
	require.Equal(t, safetensors.BF16, a.DType)
	sameBytes(t, a.Data, b.Data)
}

func TestJudge(t *testing.T) {
	f, err := Open(judgeDir)
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	require.NoError(t, f.Validate())
	require.Equal(t, []int32{2047, 2045}, f.EOS(), "generation_config.json wins over config.json")
	tok, err := f.Tokenizer()
	require.NoError(t, err)
	require.Equal(t, f.Config.VocabSize, tok.VocabSize())
	template, err := f.ChatTemplate()
	require.NoError(t, err)
	require.Contains(t, template, "<|im_start|>assistant")
}

func TestSyntheticFolders(t *testing.T) {
	f, err := OpenFS(folder(t, tiny(), tinyTensors()), "tiny")
	require.NoError(t, err)
	require.NoError(t, f.Validate())
	require.Equal(t, "tiny", f.Name())

	fsys, _ := sharded(t, 3)
	f, err = OpenFS(fsys, "tiny")
	require.NoError(t, err)
	require.NoError(t, f.Validate())

	tied := tinyTensors()
	delete(tied, LMHead)
	config := tiny()
	config["tie_word_embeddings"] = true
	f, err = OpenFS(folder(t, config, tied), "tied")
	require.NoError(t, err)
	require.NoError(t, f.Validate())
}

// The fused form holds the same numbers as the form with one tensor per matrix.
func TestFusedExperts(t *testing.T) {
	plain, err := OpenFS(folder(t, tiny(), tinyTensors()), "plain")
	require.NoError(t, err)
	fused := tinyTensors()
	for e := range 2 {
		for _, part := range []string{"gate_proj", "up_proj", "down_proj"} {
			delete(fused, ExpertTensor(1, e, part))
		}
	}
	fused["model.layers.1.mlp.experts.gate_up_proj"] = tensorSpec{"BF16", []int{2, 4, 4}, 0}
	fused["model.layers.1.mlp.experts.down_proj"] = tensorSpec{"BF16", []int{2, 4, 2}, 0}
	f, err := OpenFS(folder(t, tiny(), fused), "fused")
	require.NoError(t, err)
	require.NoError(t, f.Validate())
	for e := range 2 {
		for _, p := range mlpParts(2, 4) {
			name := ExpertTensor(1, e, p.name)
			want, err := plain.Tensor(name, p.shape[:]...)
			require.NoError(t, err)
			got, err := f.Tensor(name, p.shape[:]...)
			require.NoError(t, err)
			require.Equal(t, want, got)
		}
	}
	_, err = f.Tensor(ExpertTensor(1, 2, "up_proj"), 2, 4)
	require.ErrorContains(t, err, `tensor "model.layers.1.mlp.experts.2.up_proj.weight" is missing`)

	fused["model.layers.1.mlp.experts.gate_up_proj"] = tensorSpec{"BF16", []int{2, 2, 8}, 0}
	f, err = OpenFS(folder(t, tiny(), fused), "fused")
	require.NoError(t, err)
	require.EqualError(t, f.Validate(), `layer 1: expert 0 of 2: checkpoint: fused: `+
		`tensor "model.layers.1.mlp.experts.gate_up_proj" has shape [2 2 8], want [2 4 4] by config.json`)
}

func TestValidateNamesTheFault(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(map[string]tensorSpec)
		want   string
	}{
		{"expert", func(m map[string]tensorSpec) { delete(m, ExpertTensor(1, 1, "up_proj")) },
			"layer 1: expert 1 of 2 is missing: mlp.experts.1.up_proj.weight: checkpoint: bad/model.safetensors: " +
				`tensor "model.layers.1.mlp.experts.1.up_proj.weight" is missing`},
		{"expert shape", func(m map[string]tensorSpec) { m[ExpertTensor(1, 1, "up_proj")] = tensorSpec{"BF16", []int{4, 2}, 0} },
			`layer 1: expert 1 of 2: checkpoint: bad: tensor "model.layers.1.mlp.experts.1.up_proj.weight" has shape [4 2], want [2 4]`},
		{"dtype", func(m map[string]tensorSpec) { m[LayerTensor(0, "self_attn.k_norm")] = tensorSpec{"I8", []int{2}, 0} },
			`layer 0 of 2: checkpoint: bad: tensor "model.layers.0.self_attn.k_norm.weight" has dtype I8, want F32, BF16 or F16`},
		{"router", func(m map[string]tensorSpec) { delete(m, LayerTensor(1, "mlp.gate")) },
			`layer 1 of 2: checkpoint: bad/model.safetensors: tensor "model.layers.1.mlp.gate.weight" is missing`},
		{"dense", func(m map[string]tensorSpec) { delete(m, LayerTensor(0, "mlp.down_proj")) },
			`layer 0 of 2: checkpoint: bad/model.safetensors: tensor "model.layers.0.mlp.down_proj.weight" is missing`},
		{"head", func(m map[string]tensorSpec) { delete(m, LMHead) },
			`checkpoint: bad/model.safetensors: tensor "lm_head.weight" is missing (tie_word_embeddings is false)`},
		{"norm", func(m map[string]tensorSpec) { delete(m, FinalNorm) }, `tensor "model.norm.weight" is missing`},
		{"embedding", func(m map[string]tensorSpec) { m[Embedding] = tensorSpec{"BF16", []int{6, 4}, 0} },
			`tensor "model.embed_tokens.weight" has shape [6 4], want [5 4]`},
	} {
		t.Run(c.name, func(t *testing.T) {
			tensors := tinyTensors()
			c.change(tensors)
			f, err := OpenFS(folder(t, tiny(), tensors), "bad")
			require.NoError(t, err)
			require.ErrorContains(t, f.Validate(), c.want)
		})
	}
}

func TestBadShards(t *testing.T) {
	fsys, index := sharded(t, 3)
	last := shardName(2, 3)
	var inLast string
	for name, file := range index {
		if file == last {
			inLast = name
		}
	}
	data := fsys[last].Data
	open := func() *Folder {
		f, err := OpenFS(fsys, "bad")
		require.NoError(t, err)
		return f
	}

	delete(fsys, last)
	err := open().Validate()
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.ErrorContains(t, err, "is in shard "+last+" by the index: bad/"+last+": ")

	fsys[last] = fsys[shardName(0, 3)]
	require.ErrorContains(t, open().Validate(), "is missing, where model.safetensors.index.json puts it")

	fsys[last] = &fstest.MapFile{Data: data[:len(data)-1]}
	require.ErrorContains(t, open().Validate(), "safetensors: bad/"+last)

	fsys, index = sharded(t, 3)
	delete(index, inLast)
	setIndex(t, fsys, index)
	require.ErrorContains(t, open().Validate(), fmt.Sprintf("bad/model.safetensors.index.json: tensor %q is missing", inLast))

	for _, file := range []string{"../secret", "/etc/passwd", ".", ""} {
		index[inLast] = file
		setIndex(t, fsys, index)
		_, err = OpenFS(fsys, "bad")
		require.ErrorContains(t, err, fmt.Sprintf("is in %q, which is not a file of the folder", file))
	}
	setIndex(t, fsys, nil)
	_, err = OpenFS(fsys, "bad")
	require.ErrorContains(t, err, "bad/model.safetensors.index.json: no weight_map")
	fsys[indexFile].Data = []byte(`{"weight_map":{"a":1}}`)
	_, err = OpenFS(fsys, "bad")
	require.ErrorContains(t, err, "bad/model.safetensors.index.json: JSON, byte")
}

func TestBadFolders(t *testing.T) {
	dir := t.TempDir()
	_, err := Open(filepath.Join(dir, "none"))
	require.ErrorIs(t, err, fs.ErrNotExist)
	_, err = Open(dir)
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.ErrorContains(t, err, filepath.Join(dir, "config.json"))
	path := filepath.Join(dir, "config.json")
	require.NoError(t, os.WriteFile(path, jsonBytes(t, tiny()), 0o600))
	_, err = Open(path)
	require.ErrorContains(t, err, "is not a folder")
	_, err = Open(dir)
	require.ErrorContains(t, err, "has neither model.safetensors nor model.safetensors.index.json")

	weights := weightBytes(t, tinyTensors())
	require.NoError(t, os.WriteFile(filepath.Join(dir, weightsFile), weights[:len(weights)-3], 0o600))
	f, err := Open(dir)
	require.NoError(t, err)
	require.ErrorContains(t, f.Validate(), "are not within the")
	require.NoError(t, f.Close())

	require.NoError(t, os.WriteFile(filepath.Join(dir, generationFile), []byte(`{"eos_token_id":"x"}`), 0o600))
	_, err = Open(dir)
	require.ErrorContains(t, err, `generation_config.json: eos_token_id "x" is not a number`)
}

func TestSmallFiles(t *testing.T) {
	fsys := folder(t, tiny(), tinyTensors())
	f, err := OpenFS(fsys, "m")
	require.NoError(t, err)
	file := func(name, text string) {
		fsys[name] = &fstest.MapFile{Data: []byte(text)}
	}
	file(tokenizerConfigFile, `{"chat_template":null}`)
	got, err := f.ChatTemplate()
	require.NoError(t, err)
	require.Empty(t, got)
	file(tokenizerConfigFile, `{"chat_template":[{"name":"tools","template":"a"},{"name":"default","template":"b"}]}`)
	got, err = f.ChatTemplate()
	require.NoError(t, err)
	require.Equal(t, "b", got)
	file(tokenizerConfigFile, `{"chat_template":7}`)
	_, err = f.ChatTemplate()
	require.ErrorContains(t, err, "m/tokenizer_config.json: chat_template is neither")
	file(templateFile, "{{ x }}")
	got, err = f.ChatTemplate()
	require.NoError(t, err)
	require.Equal(t, "{{ x }}", got)

	judge, err := os.ReadFile(judgeDir + "/tokenizer.json")
	require.NoError(t, err)
	file(tokenizerFile, string(judge))
	require.True(t, f.HasTokenizer())
	_, err = f.Tokenizer()
	require.ErrorContains(t, err, "m/tokenizer.json has 2048 tokens > vocab_size 5 of config.json")
	file(generationFile, `{"eos_token_id":4}`)
	f, err = OpenFS(fsys, "m")
	require.NoError(t, err)
	require.Equal(t, []int32{4}, f.EOS())
	file(generationFile, `{"eos_token_id":[151645,4,5]}`)
	f, err = OpenFS(fsys, "m")
	require.NoError(t, err)
	require.Equal(t, []int32{4}, f.EOS(), "the vocabulary has 5 ids")
}

// Ranks share a folder: they may ask for tensors at once, before any file is open.
func TestConcurrentTensors(t *testing.T) {
	fsys, _ := sharded(t, 3)
	f, err := OpenFS(fsys, "tiny")
	require.NoError(t, err)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if err := f.Validate(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	require.NoError(t, f.Close())
	_, err = f.Tensor(FinalNorm, 4)
	require.ErrorIs(t, err, fs.ErrClosed)
}

func ExampleOpen() {
	f, err := Open("testdata/odd-a")
	if err != nil {
		panic(err)
	}
	defer f.Close()
	// The rank that owns rows 32 to 63 of the queries converts these rows only.
	c := f.Config
	q, err := f.Tensor(LayerTensor(0, "self_attn.q_proj"), c.NumAttentionHeads*c.HeadDim, c.HiddenSize)
	if err != nil {
		panic(err)
	}
	rows := make([]float32, 32*c.HiddenSize)
	if err := safetensors.Float32(rows, q, 32, 64, 0, c.HiddenSize); err != nil {
		panic(err)
	}
	fmt.Println(q.DType, q.Shape, len(rows))
	// Output: BF16 [96 72] 2304
}
