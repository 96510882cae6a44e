package model

import (
	"github.com/weftgo/weft/examples/internal/safetensors"
	"github.com/weftgo/weft/internal/par"
	"github.com/weftgo/weft/internal/simd"
	"github.com/weftgo/weft/trace"
)

// rowGrain is the rows of one piece of row-wise work: their values stay in the second-level cache from one operation to the next.
const rowGrain = 96

// rowWork is one pass over rows of the residual stream: x += y, then y = norm(x) in the memory that was just read.
type rowWork struct {
	base int       // first row of x
	y    []float32 // [rows, hidden]
	norm []float32 // [hidden] weight; nil leaves y alone
}

// flush adds what is pending, where the residual stream is needed as a whole.
func (m *Model) flush() {
	if m.pending != nil {
		m.passRows(m.step.numTokens, rowWork{y: m.pending})
		m.pending = nil
	}
}

// passRows does w on n rows.
func (m *Model) passRows(n int, w rowWork) {
	if n == 0 {
		return
	}
	span := m.lane.Begin(trace.Compute, "norm")
	m.row = w
	par.For(n, rowGrain, m.fn.rows)
	span.End()
}

func (m *Model) doRows(lo, hi int) {
	w, h := &m.row, m.model.HiddenSize
	eps := float32(m.model.RMSNormEps)
	for r := lo; r < hi; r++ {
		x, y := m.x[(w.base+r)*h:(w.base+r+1)*h], w.y[r*h:(r+1)*h]
		if w.norm != nil {
			simd.AddRMSNorm(y, x, y, w.norm, eps)
		} else {
			simd.Add(x, y)
		}
	}
}

// embedRows looks up the embeddings of rows [lo, hi).
func (m *Model) embedRows(lo, hi int) {
	h := m.model.HiddenSize
	for r := lo; r < hi; r++ {
		id := int(m.step.token[r])
		if err := safetensors.Float32(m.x[r*h:(r+1)*h], m.embedding, id, id+1, 0, h); err != nil {
			panic(err) // begin checked the id, loadHead the type
		}
	}
}

// projectRows does the first part of a layer on rows [lo, hi), of which there are at most rowGrain at a time: it adds what the
// layer before left in m.pending, norms, and makes queries, keys and values.
func (m *Model) projectRows(lo, hi int) {
	w, h, width := m.getWorker(), m.model.HiddenSize, m.qkvWidth()
	eps := float32(m.model.RMSNormEps)
	for ; lo < hi; lo += rowGrain {
		end := min(lo+rowGrain, hi)
		for r := lo; r < end; r++ {
			x, normed := m.x[r*h:(r+1)*h], w.h[(r-lo)*h:(r-lo+1)*h]
			if m.pending != nil {
				simd.AddRMSNorm(normed, x, m.pending[r*h:(r+1)*h], m.layer.inputNorm, eps)
			} else {
				simd.RMSNorm(normed, x, m.layer.inputNorm, eps)
			}
		}
		m.layer.qkv.Mul(w.qkv, width, w.h, h, end-lo, false)
		m.splitRows(w.qkv, lo, end)
	}
	m.putWorker(w)
}

// splitRows takes queries, keys and values qkv of rows [lo, hi) apart: queries are normed, rotated, scaled and put in the order
// that attendUnit reads; keys are normed, rotated and go to the cache with the values.
func (m *Model) splitRows(qkv []float32, lo, hi int) {
	st, y, d := &m.step, m.layer, m.geo.headDim
	eps, width, half := float32(m.model.RMSNormEps), m.qkvWidth(), d/2
	for r := lo; r < hi; r++ {
		row := qkv[(r-lo)*width : (r-lo+1)*width]
		cos, sin := m.rope.at(int(st.pos[r]))
		for i := range m.groups {
			g := &m.groups[i]
			at := (g.first*st.numTokens + r*g.heads) * d
			for range g.heads {
				q := m.q[at : at+d]
				simd.RMSNorm(q, row[:d], y.queryNorm, eps)
				simd.Rotate(q[:half], q[half:], cos, sin)
				row, at = row[d:], at+d
			}
		}
		keys, values := row[:len(m.groups)*d], row[len(m.groups)*d:]
		for i := range m.groups {
			k := keys[i*d : (i+1)*d]
			simd.RMSNorm(k, k, y.keyNorm, eps)
			simd.Rotate(k[:half], k[half:], cos, sin)
			m.geo.put(&y.cache, i, int(st.slot[r]), k, values[i*d:(i+1)*d])
		}
	}
}

// gateRows computes silu(gate) x up of a dense MLP.
func (m *Model) gateRows(lo, hi int) {
	n := m.dense.len()
	for r := lo; r < hi; r++ {
		gu := m.mem.gateUp[r*2*n : (r+1)*2*n]
		simd.SwiGLU(m.mem.act[r*n:(r+1)*n], gu[:n], gu[n:])
	}
}
