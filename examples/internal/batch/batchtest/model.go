package batchtest

import (
	"fmt"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/examples/internal/batch"
)

// Model is one rank's model with its own cache. One goroutine uses it at a time.
type Model struct {
	blockSize, vocab int
	cache            []uint64 // [numBlocks*blockSize]
	logits           []float32
}

// New returns a model with a cache of numBlocks blocks of blockSize positions.
func New(vocab, numBlocks, blockSize int) *Model {
	return &Model{blockSize: blockSize, vocab: vocab, cache: make([]uint64, numBlocks*blockSize)}
}

// Forward runs one step and returns logits [b.NumLogits(), vocab], valid until the next Forward.
func (m *Model) Forward(_ comm.Stream, b *batch.Batch) ([]float32, error) {
	m.logits = m.logits[:0]
	for i := range b.Seqs {
		s := &b.Seqs[i]
		if len(s.Tokens) == 0 || s.NumLogits < 0 || s.NumLogits > len(s.Tokens) {
			return nil, fmt.Errorf("batchtest: sequence %d: %d tokens, %d rows of logits", s.ID, len(s.Tokens), s.NumLogits)
		}
		if need := (s.Start + len(s.Tokens) + m.blockSize - 1) / m.blockSize; need > len(s.Blocks) {
			return nil, fmt.Errorf("batchtest: sequence %d: %d blocks where %d are needed", s.ID, len(s.Blocks), need)
		}
		for j, token := range s.Tokens {
			p := s.Start + j
			var prefix uint64
			if p > 0 {
				prefix = *m.slot(s, p-1)
			}
			prefix = step(prefix, token)
			*m.slot(s, p) = prefix
			if j >= len(s.Tokens)-s.NumLogits {
				m.logits = appendRow(m.logits, prefix, m.vocab)
			}
		}
	}
	return m.logits, nil
}

func (m *Model) slot(s *batch.Seq, position int) *uint64 {
	return &m.cache[int(s.Blocks[position/m.blockSize])*m.blockSize+position%m.blockSize]
}

// Logits returns what the model gives after a prefix: [vocab].
func Logits(prefix []int32, vocab int) []float32 {
	var h uint64
	for _, token := range prefix {
		h = step(h, token)
	}
	return appendRow(nil, h, vocab)
}

// Greedy returns the best id after a prefix, the lowest on ties.
func Greedy(prefix []int32, vocab int) int32 {
	best := 0
	z := Logits(prefix, vocab)
	for i, v := range z {
		if v > z[best] {
			best = i
		}
	}
	return int32(best)
}

func step(prefix uint64, token int32) uint64 { return scramble(prefix ^ uint64(token+1)) }

// appendRow appends logits in [-8, 8) in steps of 1/64, so that ties happen.
func appendRow(z []float32, prefix uint64, vocab int) []float32 {
	for i := range vocab {
		z = append(z, float32(int(scramble(prefix+uint64(i))>>54)-512)/64)
	}
	return z
}

func scramble(x uint64) uint64 {
	x = (x + 0x9e3779b97f4a7c15) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>29) * 0x94d049bb133111eb
	return x ^ x>>32
}
