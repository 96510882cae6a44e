package model

import (
	"fmt"
	"math"

	"github.com/weftgo/weft/examples/internal/checkpoint"
)

// Check reports why a model cannot run as c says on a world of that many ranks, with the numbers and before anything is
// loaded. Shares that do not divide are fine where each rank gets something: query heads, expert and dense widths, experts
// and the vocabulary go to the first ranks one more.
func (c Config) Check(m *checkpoint.Config, ranks int) error {
	c = c.withDefaults()
	for _, check := range []func(*checkpoint.Config, int) error{c.checkSizes, c.checkShares, c.checkMoE, c.checkMemory} {
		if err := check(m, ranks); err != nil {
			return fmt.Errorf("model: %w", err)
		}
	}
	return nil
}

func (c Config) checkSizes(_ *checkpoint.Config, ranks int) error {
	p := c.Parallel
	switch {
	case p.Size() != ranks:
		return fmt.Errorf("tp %d x dp %d are %d ranks, the world has %d", p.TP, p.DP, p.Size(), ranks)
	case c.BlockSize < 1 || c.BlockSize%lanes != 0:
		return fmt.Errorf("BlockSize %d is not a positive multiple of %d", c.BlockSize, lanes)
	case c.NumBlocks < 1 || c.MaxBatchedTokens < 1:
		return fmt.Errorf("NumBlocks %d, MaxBatchedTokens %d: each must be at least 1", c.NumBlocks, c.MaxBatchedTokens)
	case c.NumBlocks > math.MaxInt32/c.BlockSize:
		return fmt.Errorf("NumBlocks %d x BlockSize %d positions > %d", c.NumBlocks, c.BlockSize, math.MaxInt32)
	case c.Backend != "agrs" && c.Backend != "alltoall":
		return fmt.Errorf("backend %q; use agrs, alltoall or auto", c.Backend)
	}
	return nil
}

func (c Config) checkShares(m *checkpoint.Config, _ int) error {
	tp := c.Parallel.TP
	switch {
	case tp > m.NumAttentionHeads:
		return fmt.Errorf("tp %d > %d attention heads: a rank would have none; use a smaller tp and more dp", tp, m.NumAttentionHeads)
	case numMoE(m) < m.NumHiddenLayers && tp > m.IntermediateSize:
		return fmt.Errorf("tp %d > intermediate_size %d of the dense layers; use a smaller tp", tp, m.IntermediateSize)
	case tp > m.VocabSize:
		return fmt.Errorf("tp %d > vocab_size %d; use a smaller tp", tp, m.VocabSize)
	}
	return nil
}

func (c Config) checkMoE(m *checkpoint.Config, ranks int) error {
	p := c.Parallel
	switch {
	case numMoE(m) == 0 && (p.EP || c.RankInvariant):
		return fmt.Errorf("expert parallelism on a model of %d dense layers without experts; leave ep off", m.NumHiddenLayers)
	case numMoE(m) == 0:
		return nil
	case p.EP && m.NumExperts < ranks:
		return fmt.Errorf("ep over %d ranks > %d experts: a rank would have none; use fewer ranks, or leave ep off", ranks, m.NumExperts)
	case !p.EP && m.MoEIntermediateSize < ranks:
		return fmt.Errorf("moe_intermediate_size %d sliced over %d ranks: a rank would have nothing; use fewer ranks, or ep", m.MoEIntermediateSize, ranks)
	case c.RankInvariant && p.UseExchange() && c.Backend == "agrs":
		return fmt.Errorf("RankInvariant with backend agrs, which adds partial rows of ranks; use alltoall")
	}
	return c.moeConfig(m).Validate()
}

func (c Config) checkMemory(m *checkpoint.Config, ranks int) error {
	if c.MaxBytes == 0 {
		return nil
	}
	for rank := range ranks {
		if need := c.Memory(m, rank); need.Total() > c.MaxBytes {
			return fmt.Errorf("rank %d needs %d MiB (weights %d, %d blocks of keys and values %d, scratch %d) > MaxBytes %d MiB; use more ranks, fewer blocks or a smaller MaxBatchedTokens",
				rank, need.Total()>>20, need.Weights>>20, c.NumBlocks, need.Cache>>20, need.Scratch>>20, c.MaxBytes>>20)
		}
	}
	return nil
}

// Memory is what one rank allocates, in bytes.
type Memory struct {
	Weights int64 // packed in float32; the embedding stays in the file
	Cache   int64 // keys and values
	Scratch int64 // of steps of MaxBatchedTokens, without the logits
}

// Total returns the sum.
func (m Memory) Total() int64 { return m.Weights + m.Cache + m.Scratch }

// Memory estimates what a rank needs.
func (c Config) Memory(m *checkpoint.Config, rank int) Memory {
	c = c.withDefaults()
	tp, h, d := c.Parallel.TP, m.HiddenSize, m.HeadDim
	heads, groups := headGroups(m.NumAttentionHeads, m.NumKeyValueHeads, tp, rank%tp)
	vocab, _ := paddedShare(m.VocabSize, tp, rank%tp)
	dense := share(m.IntermediateSize, tp, rank%tp).len()
	geo := newGeometry(len(groups), d, c.BlockSize, c.NumBlocks)
	qkv := (heads.len() + 2*len(groups)) * d
	numMoE := numMoE(m)
	numDense := m.NumHiddenLayers - numMoE

	weights := packedFloats(vocab.len(), h) +
		m.NumHiddenLayers*(packedFloats(qkv, h)+packedFloats(h, heads.len()*d)) +
		numDense*(packedFloats(2*dense, h)+packedFloats(h, dense))
	keys, values := geo.floats()
	scratch := c.MaxBatchedTokens * (3*h + 2*heads.len()*d)
	if numDense > 0 {
		scratch += c.MaxBatchedTokens * 3 * dense
	}
	if numMoE > 0 {
		cfg := c.moeConfig(m)
		lo, hi := cfg.ExpertSlice(rank)
		weights += numMoE * (m.NumExperts*h + cfg.NumLocalExperts(rank)*(packedFloats(2*(hi-lo), h)+packedFloats(h, hi-lo)))
		scratch += cfg.MaxTokens * h
		if c.Parallel.DP > 1 { // rows received and what goes back, at worst
			scratch += 2 * c.Parallel.Size() * cfg.MaxTokens * h
		}
	}
	return Memory{Weights: 4 * int64(weights), Cache: 4 * int64(m.NumHiddenLayers) * int64(keys+values), Scratch: 4 * int64(scratch)}
}

// packedFloats is the size of a weight [n, k] in panels.
func packedFloats(n, k int) int { return (n + lanes - 1) / lanes * lanes * k }
