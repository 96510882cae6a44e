package batchtest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/examples/internal/batch"
)

func TestChunksGiveTheSameLogitsAndAWrongBlockDoesNot(t *testing.T) {
	prompt := []int32{3, 1, 4, 1, 5, 9, 2}
	m := New(10, 8, 2)
	blocks := []int32{6, 0, 3, 5}
	_, err := m.Forward(comm.Stream{}, &batch.Batch{Seqs: []batch.Seq{{Tokens: prompt[:3], Blocks: blocks[:2]}}})
	require.NoError(t, err)
	last := &batch.Batch{Seqs: []batch.Seq{{Tokens: prompt[3:], Start: 3, Blocks: blocks, NumLogits: 2}}}
	got, err := m.Forward(comm.Stream{}, last)
	require.NoError(t, err)
	require.Equal(t, append(Logits(prompt[:6], 10), Logits(prompt, 10)...), got)

	last.Seqs[0].Blocks = []int32{6, 1, 3, 5}
	got, err = m.Forward(comm.Stream{}, last)
	require.NoError(t, err)
	require.NotEqual(t, Logits(prompt, 10), got[10:])

	last.Seqs[0].Blocks = blocks[:3]
	_, err = m.Forward(comm.Stream{}, last)
	require.ErrorContains(t, err, "3 blocks where 4 are needed")
}
