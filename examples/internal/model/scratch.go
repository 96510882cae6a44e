package model

import (
	"runtime"

	"github.com/weftgo/weft/examples/internal/batch"
)

// step is what one Forward works on.
type step struct {
	batch     *batch.Batch
	numTokens int
	pos       []int32 // [numTokens] position of each row
	slot      []int32 // [numTokens] block x blockSize + offset
	token     []int32 // [numTokens]
	wanted    []int32 // [numLogits] rows whose logits are wanted
	units     []unit
}

// buffers is memory of MaxBatchedTokens rows that every step reuses.
type buffers struct {
	x      []float32 // [tokens, hidden] residual stream
	y      []float32 // [tokens, hidden] what attention adds, then normed rows
	out    []float32 // [tokens, hidden] what the MLP or MoE adds
	gateUp []float32 // [tokens, 2 x dense share]
	act    []float32 // [tokens, dense share]
	rows   []float32 // [numLogits, hidden] final rows; grows
	part   []float32 // [numLogits, vocabWidth] this rank's logits; grows
	gather []float32 // [tp, numLogits, vocabWidth]; grows
	logits []float32 // [numLogits, vocab]; grows
	own    []float32 // [tokens / tp, hidden] rows of this rank, where a replica's ranks have different ones
	counts []int     // [tp] rows of a replica's ranks
}

// functions are the loops of a step, bound once so that spreading them over cores allocates nothing.
type functions struct {
	embed, rows, project, attend, gate, head func(lo, hi int)
}

func (m *Model) allocate() {
	n, h := m.cfg.MaxBatchedTokens, m.model.HiddenSize
	q := m.heads.len() * m.model.HeadDim
	b := &m.mem
	b.x, b.y, b.out = make([]float32, n*h), make([]float32, n*h), make([]float32, n*h)
	m.q, m.attn = make([]float32, n*q), make([]float32, n*q)
	for i := range m.layers {
		if m.layers[i].gateUp != nil && b.act == nil {
			b.gateUp = make([]float32, n*2*m.dense.len())
			b.act = make([]float32, n*m.dense.len())
		}
	}
	b.own = make([]float32, m.moe.MaxTokens*h)
	b.counts = make([]int, m.cfg.Parallel.TP)
	st := &m.step
	st.pos, st.slot, st.token = make([]int32, n), make([]int32, n), make([]int32, n)
	st.wanted = make([]int32, 0, n)
	st.units = make([]unit, 0, n*len(m.groups))
	m.workers = make(chan *worker, 4*runtime.GOMAXPROCS(0))
	m.fn = functions{embed: m.embedRows, rows: m.doRows, project: m.projectRows, attend: m.attendUnits, gate: m.gateRows, head: m.headRows}
}

// grow returns a slice of n values, reusing x's memory when it is large enough. The values are undefined.
func grow(x []float32, n int) []float32 {
	if cap(x) < n {
		return make([]float32, n, n+n/4)
	}
	return x[:n]
}
