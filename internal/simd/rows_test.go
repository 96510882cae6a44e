package simd

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// sortedTopK is TopK written for reading.
func sortedTopK(k int, x []float32) []int32 {
	ids := make([]int32, len(x))
	for i := range ids {
		ids[i] = int32(i)
	}
	slices.SortStableFunc(ids, func(a, b int32) int {
		switch va, vb := rank(x[a]), rank(x[b]); {
		case va > vb:
			return -1
		case va < vb:
			return 1
		}
		return 0
	})
	return ids[:k]
}

func TestTopK(t *testing.T) {
	check := func(t *testing.T) {
		rng := rand.New(rand.NewPCG(3, 4))
		for n := 1; n <= 300; n += 1 + n/80 {
			for kind := range 4 {
				x := random(rng, n+9)[3 : n+3 : n+3]
				for i := range x {
					switch kind {
					case 1: // ties
						x[i] = float32(rng.IntN(4) - 2)
					case 2: // nothing but values that rank lowest, and zeros of both signs
						x[i] = []float32{nan, -inf, 0, float32(math.Copysign(0, -1)), -1e-42}[rng.IntN(5)]
					case 3:
						x[i] = []float32{nan, -inf, float32(math.Copysign(nan64, -1))}[rng.IntN(3)]
					}
				}
				old := slices.Clone(x)
				for _, k := range []int{1, 2, 4, 8, rng.IntN(n) + 1, n} {
					k = min(k, n)
					ids := make([]int32, k+2)
					ids[k], ids[k+1] = -7, -8
					TopK(ids[:k], x)
					require.Equal(t, append(sortedTopK(k, x), -7, -8), ids, "top %d of %v", k, x)
				}
				requireSame(t, old, x, "input")
			}
		}
		TopK(nil, nil)
		require.Panics(t, func() { TopK(make([]int32, 2), make([]float32, 1)) })
	}
	t.Run("go", func(t *testing.T) { defer Force(Go)(); check(t) })
	eachLevel(t, check)
}

// AddRMSNorm has the bits of Add and RMSNorm.
func TestAddRMSNormIsBoth(t *testing.T) {
	check := func(t *testing.T) {
		rng := rand.New(rand.NewPCG(9, 10))
		for n := range maxLen {
			x, y, w := random(rng, n), random(rng, n), random(rng, n)
			sum, want := slices.Clone(x), make([]float32, n)
			Add(sum, y)
			RMSNorm(want, sum, w, 1e-6)
			AddRMSNorm(y, x, y, w, 1e-6)
			requireSame(t, sum, x, "sum")
			requireSame(t, want, y, "norm")
		}
	}
	atGo(func() { check(t) })
	eachLevel(t, check)
}

var nan64 = math.NaN()

func TestWeightedSumMatchesTwin(t *testing.T) {
	eachLevel(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(5, 6))
		eachSlice(func(start, n int) {
			stride := n + rng.IntN(3)
			rows := random(rng, start+10*stride+n)[start:]
			k := rng.IntN(7)
			index, weights := make([]int32, k), random(rng, k)
			for j := range index {
				index[j] = int32(rng.IntN(13) - 2)
				if index[j] > 10 {
					index[j] = math.MinInt32
				}
			}
			got := random(rng, start+n+9)
			want := slices.Clone(got)
			atGo(func() { WeightedSum(want[start:start+n], rows, stride, index, weights) })
			WeightedSum(got[start:start+n:start+n], rows, stride, index, weights)
			requireSame(t, want, got, fmt.Sprintf("start=%d n=%d k=%d", start, n, k))
		})
	})
}

func TestWeightedSumByHand(t *testing.T) {
	check := func(t *testing.T) {
		rows := []float32{1e8, 2, 0, 1, 3, 0, -1e8, 5, 0}
		y := []float32{nan, nan}
		WeightedSum(y, rows, 3, []int32{0, -1, 1, 2}, []float32{1, nan, 1, 1})
		require.Equal(t, []float32{0, 10}, y) // in this order the 1 is lost
		WeightedSum(y, rows, 3, []int32{0, 2, 1}, []float32{1, 1, 2})
		require.Equal(t, []float32{2, 13}, y)
		WeightedSum(y, rows, 3, []int32{-1}, []float32{nan})
		require.Equal(t, []float32{0, 0}, y)
		require.Panics(t, func() { WeightedSum(y, rows, 3, []int32{3}, []float32{1}) })
		require.Panics(t, func() { WeightedSum(y, rows, 3, []int32{0, 1}, []float32{1}[:1:1]) })
	}
	atGo(func() { check(t) })
	eachLevel(t, check)
}

// Rows keep the bits of SwiGLU on each, and nothing outside the rows is touched.
func TestSwiGLURowsMatchesTwin(t *testing.T) {
	check := func(t *testing.T) {
		rng := rand.New(rand.NewPCG(7, 8))
		for width := range 40 {
			for numRows := range 4 {
				stride := (2*width+7)/8*8 + 8*rng.IntN(2)
				all := random(rng, 3+numRows*stride+20)
				h := all[3 : 3+numRows*stride : 3+numRows*stride]
				old := slices.Clone(all)
				SwiGLURows(h, numRows, stride, width)
				for r := range numRows {
					row := old[3+r*stride:]
					want := make([]float32, width)
					atGo(func() { SwiGLU(want, row[:width], row[width:2*width]) })
					requireSame(t, want, h[r*stride:r*stride+width], fmt.Sprintf("width=%d row %d of %d", width, r, numRows))
				}
				requireSame(t, old[:3], all[:3], "before")
				requireSame(t, old[3+numRows*stride:], all[3+numRows*stride:], "after")
			}
		}
		require.Panics(t, func() { SwiGLURows(make([]float32, 31), 2, 16, 8) })
		require.Panics(t, func() { SwiGLURows(make([]float32, 64), 2, 20, 10) })
		require.Panics(t, func() { SwiGLURows(make([]float32, 64), 2, 8, 5) })
	}
	atGo(func() { check(t) })
	eachLevel(t, check)
}

func TestRowsAllocateNothing(t *testing.T) {
	h, ids, weights := make([]float32, 400), make([]int32, 4), make([]float32, 4)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		TopK(ids, h[:32])
		TopK(ids, h[:200])
		WeightedSum(h[:20], h[20:], 20, ids, weights)
		SwiGLURows(h, 10, 24, 10)
	}))
}

// BenchmarkRows has the shapes of the bundled model on one rank of eight.
func BenchmarkRows(b *testing.B) {
	x, ids := make([]float32, 128), make([]int32, 4)
	rng := rand.New(rand.NewPCG(1, 2))
	rows := make([]float32, 64*128)
	for i := range rows {
		rows[i] = rng.Float32()
	}
	for _, n := range []int{32, 64, 128} {
		b.Run(fmt.Sprintf("TopK/n=%d", n), func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				copy(x, rows[i%64*n:][:n])
				TopK(ids, x[:n])
			}
		})
	}
	weights := []float32{0.1, 0.2, 0.3, 0.4}
	b.Run("WeightedSum/4x192", func(b *testing.B) {
		for b.Loop() {
			WeightedSum(rows[:192], rows[192:], 192, []int32{0, 5, 3, 11}, weights)
		}
	})
	h := make([]float32, 100*24)
	b.Run("SwiGLURows/100x10", func(b *testing.B) {
		for b.Loop() {
			SwiGLURows(h, 100, 24, 10)
		}
	})
	b.Run("SwiGLU/100x10", func(b *testing.B) {
		for b.Loop() {
			for r := range 100 {
				SwiGLU(h[r*24:r*24+10], h[r*24:r*24+10], h[r*24+10:])
			}
		}
	})
}
