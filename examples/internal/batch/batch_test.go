package batch

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func sample() *Batch {
	return &Batch{Seqs: []Seq{
		{ID: 1, Tokens: []int32{5, 6, 7}, Start: 4, Blocks: []int32{2, 0}, NumLogits: 1},
		{ID: 2, Tokens: []int32{9}, Start: 3, Blocks: []int32{1}, NumLogits: 1, Generation: true},
		{ID: 3, Tokens: []int32{8, 8}, Blocks: []int32{3}},
	}}
}

func TestCounts(t *testing.T) {
	b := sample()
	require.Equal(t, 6, b.NumTokens())
	require.Equal(t, 2, b.NumLogits())
	require.Equal(t, "execute_context_2(5)_generation_1(1)", b.Name())
	require.Equal(t, "dummy_step", (&Batch{}).Name())
}

func TestHashCoversEveryField(t *testing.T) {
	seen := map[uint64]string{sample().Hash(): "sample", (&Batch{}).Hash(): "empty"}
	require.Len(t, seen, 2)
	require.Equal(t, sample().Hash(), sample().Hash())
	for name, change := range map[string]func(*Batch){
		"id":         func(b *Batch) { b.Seqs[0].ID = 7 },
		"token":      func(b *Batch) { b.Seqs[0].Tokens[2]++ },
		"start":      func(b *Batch) { b.Seqs[0].Start++ },
		"block":      func(b *Batch) { b.Seqs[0].Blocks[1] = 4 },
		"logits":     func(b *Batch) { b.Seqs[0].NumLogits = 2 },
		"generation": func(b *Batch) { b.Seqs[1].Generation = false },
		"order":      func(b *Batch) { b.Seqs[0], b.Seqs[1] = b.Seqs[1], b.Seqs[0] },
		"one less":   func(b *Batch) { b.Seqs = b.Seqs[:2] },
		"token moved to blocks": func(b *Batch) {
			b.Seqs[0].Tokens, b.Seqs[0].Blocks = []int32{5, 6}, []int32{7, 2, 0}
		},
	} {
		b := sample()
		change(b)
		require.Empty(t, seen[b.Hash()], name)
		seen[b.Hash()] = name
	}
	require.Zero(t, testing.AllocsPerRun(10, func() { sample := Batch{}; sample.Hash() }))
}

func BenchmarkHash(b *testing.B) {
	x := &Batch{Seqs: []Seq{{Tokens: make([]int32, 8192), Blocks: make([]int32, 512)}}}
	for b.Loop() {
		x.Hash()
	}
}
