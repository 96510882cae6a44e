package model

import (
	"fmt"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/examples/internal/batch"
	"github.com/weftgo/weft/internal/par"
	"github.com/weftgo/weft/trace"
)

// Forward runs one step of this rank's replica. All ranks of the replica give the same batch; ranks of other replicas call
// Forward for the same step, with an empty batch if they have nothing to run. It returns logits [b.NumLogits(), vocab] in
// sequence order, the same on every rank of the replica; the memory is the model's and valid until the next call.
//
// A batch that the model cannot run is an error on every rank of its replica before anything is exchanged; other replicas
// then wait for this one until the caller aborts the world (World.Run does).
func (m *Model) Forward(s comm.Stream, b *batch.Batch) ([]float32, error) {
	if err := m.begin(b); err != nil {
		return nil, fmt.Errorf("model: %w", err)
	}
	n := m.step.numTokens
	m.x, m.pending = m.mem.x[:n*m.model.HiddenSize], nil
	if n > 0 {
		span := m.lane.Begin(trace.Compute, "embed")
		par.For(n, rowGrain, m.fn.embed)
		span.End()
		m.look(probeEmbedding, 0, m.x)
	}
	for i, y := range m.layers {
		m.layer = y
		if err := m.runLayer(s, y); err != nil {
			return nil, fmt.Errorf("model: layer %d: %w", i, err)
		}
		if m.probe != nil {
			m.flush()
			m.probe(probeLayer, i, m.x)
		}
	}
	logits, err := m.logits(s)
	if err != nil {
		return nil, fmt.Errorf("model: logits: %w", err)
	}
	return logits, nil
}

func (m *Model) look(at probePoint, layer int, rows []float32) {
	if m.probe != nil {
		m.probe(at, layer, rows)
	}
}

// begin checks the batch and lays out the step.
func (m *Model) begin(b *batch.Batch) error {
	st := &m.step
	st.batch, st.numTokens, st.wanted = b, 0, st.wanted[:0]
	if n := b.NumTokens(); n > m.cfg.MaxBatchedTokens {
		return fmt.Errorf("step of %d tokens > MaxBatchedTokens %d", n, m.cfg.MaxBatchedTokens)
	}
	for i := range b.Seqs {
		if err := m.beginSeq(&b.Seqs[i]); err != nil {
			return fmt.Errorf("sequence %d (request %d): %w", i, b.Seqs[i].ID, err)
		}
	}
	m.cutUnits()
	return nil
}

func (m *Model) beginSeq(s *batch.Seq) error {
	st, size := &m.step, m.cfg.BlockSize
	n := len(s.Tokens)
	end := s.Start + n
	switch {
	case n == 0 || s.Start < 0:
		return fmt.Errorf("%d tokens from position %d; a sequence of a step has at least one", n, s.Start)
	case end > m.maxPositions():
		return fmt.Errorf("position %d; the model runs up to %d positions (max_position_embeddings %d, cache of %d blocks x %d)",
			end-1, m.maxPositions(), m.model.MaxPositionEmbeddings, m.cfg.NumBlocks, size)
	case len(s.Blocks)*size < end:
		return fmt.Errorf("%d blocks of %d positions do not hold %d positions", len(s.Blocks), size, end)
	case s.NumLogits < 0 || s.NumLogits > n:
		return fmt.Errorf("logits of the last %d tokens of %d", s.NumLogits, n)
	}
	for i, blk := range s.Blocks {
		if blk < 0 || int(blk) >= m.cfg.NumBlocks {
			return fmt.Errorf("block %d is number %d; the cache has %d", i, blk, m.cfg.NumBlocks)
		}
	}
	for i, id := range s.Tokens {
		if id < 0 || int(id) >= m.model.VocabSize {
			return fmt.Errorf("token %d is id %d; the vocabulary has %d", i, id, m.model.VocabSize)
		}
		p, r := s.Start+i, st.numTokens+i
		st.pos[r], st.token[r] = int32(p), id
		st.slot[r] = s.Blocks[p/size]*int32(size) + int32(p%size)
		if i >= n-s.NumLogits {
			st.wanted = append(st.wanted, int32(r))
		}
	}
	st.numTokens += n
	return nil
}

// runLayer runs one layer on m.x.
func (m *Model) runLayer(s comm.Stream, y *layer) error {
	n := m.step.numTokens
	if n > 0 {
		m.attend(y)
	}
	switch {
	case y.moe != nil && m.tp != nil && m.cfg.Parallel.DP > 1:
		return m.scatteredMoE(s, y)
	case y.moe != nil:
		return m.moeBlock(s, y)
	case n > 0:
		return m.denseBlock(s, y)
	}
	return nil
}

// attend computes this rank's part of the attention block's output, m.mem.y [numTokens, hidden].
func (m *Model) attend(y *layer) {
	n, h := m.step.numTokens, m.model.HiddenSize
	span := m.lane.Begin(trace.Compute, "attention")
	par.For(n, rowGrain, m.fn.project)
	m.pending = nil
	par.For(len(m.step.units), 1, m.fn.attend)
	q := m.heads.len() * m.model.HeadDim
	y.out.Mul(m.mem.y, h, m.attn, q, n, false)
	span.End()
}
