package model

import (
	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/internal/par"
	"github.com/weftgo/weft/internal/simd"
	"github.com/weftgo/weft/trace"
)

// logits norms the rows that logits are wanted for, multiplies them by this rank's rows of the output head, and gathers the
// vocabulary over the replica. A step that wants none has no collective here.
func (m *Model) logits(s comm.Stream) ([]float32, error) {
	st, b := &m.step, &m.mem
	n, h, vocab := len(st.wanted), m.model.HiddenSize, m.model.VocabSize
	if n == 0 {
		return nil, nil
	}
	span := m.lane.Begin(trace.Compute, "logits")
	b.rows, b.logits = grow(b.rows, n*h), grow(b.logits, n*vocab)
	par.For(n, rowGrain, m.fn.head)
	m.look(probeFinal, 0, b.rows)
	if m.tp == nil {
		m.head.Mul(b.logits, vocab, b.rows, h, n, false)
		span.End()
		return b.logits, nil
	}
	w := m.vocabWidth
	b.part = grow(b.part, n*w)
	b.gather = grow(b.gather, m.tp.Size()*n*w)
	m.head.Mul(b.part, w, b.rows, h, n, false)
	span.End()
	if err := m.tp.AllGather(s, comm.Of(b.gather, w), comm.Of(b.part, w)); err != nil {
		return nil, err
	}
	span = m.lane.Begin(trace.Compute, "logits")
	for t := range m.tp.Size() {
		v, _ := paddedShare(vocab, m.tp.Size(), t)
		for r := range n {
			copy(b.logits[r*vocab+v.lo:r*vocab+v.hi], b.gather[(t*n+r)*w:])
		}
	}
	span.End()
	return b.logits, nil
}

// headRows completes and norms the wanted rows [lo, hi).
func (m *Model) headRows(lo, hi int) {
	h, eps := m.model.HiddenSize, float32(m.model.RMSNormEps)
	for i := lo; i < hi; i++ {
		r := int(m.step.wanted[i])
		x := m.x[r*h : (r+1)*h]
		if m.pending != nil {
			simd.Add(x, m.pending[r*h:(r+1)*h])
		}
		simd.RMSNorm(m.mem.rows[i*h:(i+1)*h], x, m.finalNorm, eps)
	}
}
