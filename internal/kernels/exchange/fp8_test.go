package exchange

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/dtype"
)

// quantise runs the quantiser on float32 rows and returns values and scales.
func quantise(x []float32, hidden int) (q []dtype.E4M3, scales []float32) {
	groups := (hidden + 127) / 128
	rows := len(x) / hidden
	q, scales = make([]dtype.E4M3, len(x)), make([]float32, rows*groups)
	new(Quantiser).Quantise(comm.Of(q, hidden), comm.Of(scales, groups), comm.Of(x, hidden))
	return q, scales
}

// Each value comes back within half a step of e4m3, of the group's largest value: 2^-4 of itself, or half of the smallest step.
func TestQuantiseIsClose(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for _, hidden := range []int{1, 127, 128, 129, 200, 384} {
		const rows = 20
		x := make([]float32, rows*hidden)
		for i := range x {
			x[i] = float32(rng.NormFloat64() * math.Pow(10, float64(rng.IntN(9)-4)))
		}
		q, scales := quantise(x, hidden)
		groups := (hidden + 127) / 128
		for i, v := range x {
			row, col := i/hidden, i%hidden
			most := 0.0
			for c := col / 128 * 128; c < min(hidden, col/128*128+128); c++ {
				most = max(most, math.Abs(float64(x[row*hidden+c])))
			}
			scale := float64(scales[row*groups+col/128])
			require.InEpsilon(t, most/448, scale, 1e-6)
			back := float64(q[i].Float32()) * scale
			require.LessOrEqual(t, math.Abs(back-float64(v)), math.Abs(float64(v))/16+scale/1024+1e-30, "hidden %d, value %v of a group up to %v", hidden, v, most)
		}
	}
}

func TestQuantiseOddValues(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	tiny := math.Float32frombits(1)
	q, scales := quantise([]float32{0, 0, tiny, 0, nan, 448, inf, 1, -448, float32(math.Copysign(0, -1))}, 2)
	require.Equal(t, []float32{1, 1, 1, inf, 1}, scales)
	require.Zero(t, q[0].Float32())
	require.Zero(t, q[2].Float32(), "too small for a scale of its own")
	require.True(t, math.IsNaN(float64(q[4].Float32())))
	require.Equal(t, float32(448), q[5].Float32(), "the NaN's neighbour is untouched")
	require.True(t, math.IsNaN(float64(q[7].Float32()*scales[3])), "an infinity makes its group NaN")
	require.Equal(t, float32(-448), q[8].Float32())
	require.True(t, math.Signbit(float64(q[9].Float32())))
}

func TestQuantiseExactPowers(t *testing.T) {
	x := []float32{448, 1, -2, 0.5, 16, 0, 3, 240}
	q, scales := quantise(x, 8)
	require.Equal(t, []float32{1}, scales)
	for i, v := range x {
		require.Equal(t, v, q[i].Float32())
	}
}
