package moe

import (
	"fmt"

	"github.com/weftgo/weft/internal/gemm"
	"github.com/weftgo/weft/internal/simd"
)

// An ffn is the packed weights of one gated feed-forward block, or of a slice of its width: down(silu(gate x) * up x).
// Gate and up are one matrix, so that one product gives both and narrow slices waste little of the panels. Its rows are
// padded to whole vectors: the product's columns past 2 x width are zeros.
type ffn struct {
	gateUp *gemm.Packed // [stride, hidden]: gate, up, zeros
	down   *gemm.Packed // [hidden, width]
	width  int
	stride int // of a row of the product
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
	stride := hiddenStride(width)
	gateUp := make([]float32, stride*hidden)
	copy(gateUp, w.Gate)
	copy(gateUp[width*hidden:], w.Up)
	return ffn{
		gateUp: gemm.Pack(gateUp, stride, hidden, hidden), down: gemm.Pack(w.Down, hidden, width, width),
		width: width, stride: stride,
	}, nil
}

// vector is the width of whole stores: the product's rows are a multiple of it.
const vector = 8

// hiddenStride returns the columns of the product of gate and up.
func hiddenStride(width int) int {
	return (2*width + vector - 1) / vector * vector
}

// rows computes y [len(rows), hidden] from the rows of x [.., hidden] that rows lists. h holds len(rows) x stride values.
func (f *ffn) rows(y, x []float32, rows []int32, h []float32) {
	f.gateUp.MulRows(h, f.stride, x, f.gateUp.K(), rows, false)
	f.finish(y, h, len(rows))
}

// block is rows for the consecutive rows of x [numRows, hidden].
func (f *ffn) block(y, x []float32, numRows int, h []float32) {
	f.gateUp.Mul(h, f.stride, x, f.gateUp.K(), numRows, false)
	f.finish(y, h, numRows)
}

// finish goes from h [numRows, stride] to y.
func (f *ffn) finish(y, h []float32, numRows int) {
	simd.SwiGLURows(h, numRows, f.stride, f.width)
	f.down.Mul(y, f.gateUp.K(), h, f.stride, numRows, false)
}
