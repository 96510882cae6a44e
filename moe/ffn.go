package moe

import (
	"fmt"

	"github.com/weftgo/weft/internal/gemm"
	"github.com/weftgo/weft/internal/simd"
)

// An ffn is the packed weights of one gated feed-forward block, or of a slice of its width: down(silu(gate x) * up x).
type ffn struct {
	gate, up *gemm.Packed // [width, hidden]
	down     *gemm.Packed // [hidden, width]
	width    int
}

// packFFN copies the weights of w into panels. Width 0 is a slice of which a rank has nothing.
func packFFN(w Expert, width, hidden int) (f ffn, err error) {
	for _, m := range []struct {
		name string
		have int
	}{{"gate", len(w.Gate)}, {"up", len(w.Up)}, {"down", len(w.Down)}} {
		if m.have != width*hidden {
			return f, fmt.Errorf("%s has %d values; width %d x hidden %d are %d", m.name, m.have, width, hidden, width*hidden)
		}
	}
	if width == 0 {
		return f, nil
	}
	return ffn{
		gate: gemm.Pack(w.Gate, width, hidden, hidden), up: gemm.Pack(w.Up, width, hidden, hidden),
		down: gemm.Pack(w.Down, hidden, width, width), width: width,
	}, nil
}

// rows computes y [len(rows), hidden] from the rows of x [.., hidden] that rows lists. h holds 2 x len(rows) x width values
// of scratch.
func (f *ffn) rows(y, x []float32, rows []int32, h []float32) {
	n := len(rows) * f.width
	hidden := f.gate.K()
	gate, up := h[:n], h[n:2*n]
	f.gate.MulRows(gate, f.width, x, hidden, rows, false)
	f.up.MulRows(up, f.width, x, hidden, rows, false)
	simd.SwiGLU(gate, gate, up)
	f.down.Mul(y, hidden, gate, f.width, len(rows), false)
}

// block is rows for the consecutive rows of x [numRows, hidden].
func (f *ffn) block(y, x []float32, numRows int, h []float32) {
	n := numRows * f.width
	hidden := f.gate.K()
	gate, up := h[:n], h[n:2*n]
	f.gate.Mul(gate, f.width, x, hidden, numRows, false)
	f.up.Mul(up, f.width, x, hidden, numRows, false)
	simd.SwiGLU(gate, gate, up)
	f.down.Mul(y, hidden, gate, f.width, numRows, false)
}
