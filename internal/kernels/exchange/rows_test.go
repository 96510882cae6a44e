package exchange

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/dtype"
	"github.com/weftgo/weft/routing"
)

// The product of weight and value is rounded before it is added: operands are chosen so that a fused multiply-add would
// give another result.
func TestProductsAreRounded(t *testing.T) {
	w := float32(1 + 1.0/4096) // w*w is 1 + 2^-11 + 2^-24, halfway between two floats
	from := -float32(1 + 1.0/2048)
	fused := float32(math.FMA(float64(w), float64(w), float64(from)))
	product := float32(w * w)
	require.NotEqual(t, fused, from+product, "the operands tell the two apart")
	for _, n := range []int{1, 7, 64} {
		acc, row := make([]float32, n), make([]float32, n)
		for i := range acc {
			acc[i], row[i] = from, w
		}
		addScaled(acc, w, comm.Of(row, n), 0, 0)
		for _, a := range acc {
			require.Equal(t, from+product, a)
		}
	}
}

// Sums over rows wider than a block equal plain loops, for each type, and a row without slots becomes zeros.
func TestPartialsAndSums(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	const rows, hidden, topK, experts = 6, 2*block + 77, 3, 4
	locals, weights := make([]int32, rows*topK), make([]float32, rows*topK)
	for i := range locals {
		locals[i], weights[i] = int32(rng.IntN(experts+1)-1), rng.Float32()
	}
	copy(locals[topK:], []int32{-1, -1, -1})
	index := routing.BuildIndex(locals, weights, topK, experts, 4)
	y := make([]float32, index.NumSlots()*hidden)
	for i := range y {
		y[i] = float32(rng.NormFloat64())
	}
	want := make([]float32, rows*hidden)
	for i, s := range index.Slot {
		if s >= 0 {
			for j := range hidden {
				want[i/topK*hidden+j] += float32(weights[i] * y[int(s)*hidden+j])
			}
		}
	}
	got := make([]float32, rows*hidden)
	for i := range got {
		got[i] = float32(math.NaN())
	}
	p := &Partials{}
	p.Sum(comm.Of(got, hidden), comm.Of(y, hidden), index, topK, dtype.F32)
	require.Equal(t, want, got)

	bf := make([]dtype.BFloat16, rows*hidden)
	p.Sum(comm.Of(bf, hidden), comm.Of(y, hidden), index, topK, dtype.BF16)
	p.Sum(comm.Of(got, hidden), comm.Of(y, hidden), index, topK, dtype.BF16)
	for i := range bf {
		require.Equal(t, dtype.ToBFloat16(want[i]), bf[i])
		require.Equal(t, bf[i].Float32(), got[i], "rounded, but stored wide")
	}

	// Token 0 is rows 2 and 0, token 1 nothing; out is a bias too.
	terms := Terms{Start: []int32{0, 2, 2}, Item: []int32{2, 0}}
	out := append([]float32{}, want[:2*hidden]...)
	new(Sums).Sum(comm.Of(out, hidden), comm.Of(want, hidden), terms, []comm.Buffer{comm.Of(out, hidden)})
	for j := range hidden {
		require.Equal(t, want[2*hidden+j]+want[j]+want[j], out[j])
		require.Equal(t, want[hidden+j], out[hidden+j])
	}
}
