// Package batch is what the scheduler hands to the model for one step: which tokens of which sequences, where their keys
// and values go, and for which of them logits are wanted.
package batch

import (
	"fmt"
	"hash/maphash"
)

// Batch is one step of one data-parallel replica; all its tensor-parallel ranks get the same. An empty batch is a dummy step:
// the rank takes part in every exchange with zero tokens.
type Batch struct {
	Seqs []Seq
}

// Seq is the part of one sequence that a step runs.
type Seq struct {
	ID         uint64  // the request
	Tokens     []int32 // ids at positions [Start, Start+len(Tokens)); at least one
	Start      int     // keys and values of positions [0, Start) are in the blocks already
	Blocks     []int32 // block i of the sequence holds positions [i*BlockSize, (i+1)*BlockSize); covers Start+len(Tokens)
	NumLogits  int     // logits are wanted for the last NumLogits of Tokens: 0 for a chunk of a prompt that goes on
	Generation bool    // a decode step; else context (prompt) tokens
}

// NumTokens returns the tokens of the step.
func (b *Batch) NumTokens() int {
	n := 0
	for i := range b.Seqs {
		n += len(b.Seqs[i].Tokens)
	}
	return n
}

// NumLogits returns the rows of logits that the step returns, in sequence order.
func (b *Batch) NumLogits() int {
	n := 0
	for i := range b.Seqs {
		n += b.Seqs[i].NumLogits
	}
	return n
}

// Count splits the step into context and generation sequences and their tokens.
func (b *Batch) Count() (ctxSeqs, ctxTokens, genSeqs, genTokens int) {
	for i := range b.Seqs {
		if s := &b.Seqs[i]; s.Generation {
			genSeqs++
			genTokens += len(s.Tokens)
		} else {
			ctxSeqs++
			ctxTokens += len(s.Tokens)
		}
	}
	return
}

// Name is the step's name in a trace: execute_context_n(tokens)_generation_m(tokens), or dummy_step when it is empty.
func (b *Batch) Name() string {
	if len(b.Seqs) == 0 {
		return "dummy_step"
	}
	cs, ct, gs, gt := b.Count()
	return fmt.Sprintf("execute_context_%d(%d)_generation_%d(%d)", cs, ct, gs, gt)
}

var seed = maphash.MakeSeed()

// Hash is equal for equal batches within one process: what tensor-parallel ranks compare before they run one.
func (b *Batch) Hash() uint64 {
	var h maphash.Hash
	h.SetSeed(seed)
	for i := range b.Seqs {
		s := &b.Seqs[i]
		maphash.WriteComparable(&h, [5]int{int(s.ID), s.Start, s.NumLogits, len(s.Tokens), len(s.Blocks)})
		for _, t := range s.Tokens {
			maphash.WriteComparable(&h, t)
		}
		for _, t := range s.Blocks {
			maphash.WriteComparable(&h, t)
		}
	}
	return h.Sum64()
}
