package batch

import "github.com/weftgo/weft/trace"

// Batch is one step of one data-parallel replica; all its tensor-parallel ranks get the same. An empty batch is a dummy step:
// the rank takes part in every exchange with zero tokens. Slices belong to the scheduler and stay as they are until
// every rank of the replica has returned from the step.
type Batch struct {
	Seqs []Seq
}

// Seq is the part of one sequence that a step runs.
type Seq struct {
	ID         uint64  // the request
	Tokens     []int32 // ids at positions [Start, Start+len(Tokens)); at least one
	Start      int     // keys and values of positions [0, Start) are in the blocks already
	Blocks     []int32 // block i of the sequence holds positions [i*BlockSize, (i+1)*BlockSize); covers Start+len(Tokens). Full ones before Start may be other sequences' too; the step only reads them
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
		return trace.DummyStep
	}
	return trace.StepName(b.Count())
}

// Hash is equal for equal batches, in this process and any other: what tensor-parallel ranks compare before they run one.
// It covers every field, in order, and allocates nothing.
func (b *Batch) Hash() uint64 {
	h := mix(0, uint64(len(b.Seqs)))
	for i := range b.Seqs {
		s := &b.Seqs[i]
		h = mix(h, s.ID)
		h = mix(h, uint64(s.Start))
		h = mix(h, uint64(s.NumLogits))
		if s.Generation {
			h = mix(h, 1)
		}
		h = mixAll(h, s.Tokens)
		h = mixAll(h, s.Blocks)
	}
	return h
}

func mixAll(h uint64, x []int32) uint64 {
	h = mix(h, uint64(len(x)))
	for _, v := range x {
		h = mix(h, uint64(uint32(v)))
	}
	return h
}

// mix takes one word into a hash: a multiplication and a shift, with constants of the 64-bit finalizer of MurmurHash3.
func mix(h, x uint64) uint64 {
	h = (h ^ x) * 0xff51afd7ed558ccd
	return (h ^ h>>33) + 0xc4ceb9fe1a85ec53
}
