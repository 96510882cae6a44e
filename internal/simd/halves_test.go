package simd

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// isNaN16 says whether a 16-bit pattern is NaN.
func isNaN16(h half, v uint16) bool { x := h.widen(v); return x != x }

// Every 16-bit pattern survives widening and narrowing, at every level.
func TestHalvesRoundTrip(t *testing.T) {
	all := make([]uint16, 1<<16)
	for i := range all {
		all[i] = uint16(i)
	}
	check := func(t *testing.T) {
		x, back := make([]float32, len(all)), make([]uint16, len(all))
		for _, h := range []half{bf16, f16} {
			widen(x, all, h)
			for i, v := range x {
				require.True(t, math.Float32bits(v) == math.Float32bits(h.widen(uint16(i))) || v != v && isNaN16(h, uint16(i)))
			}
			narrow(back, x, h)
			for i, v := range back {
				if isNaN16(h, uint16(i)) {
					require.True(t, isNaN16(h, v))
				} else {
					require.Equal(t, uint16(i), v)
				}
			}
		}
	}
	atGo(func() { check(t) })
	eachLevel(t, check)
}

// nearest16 finds the nearest finite neighbour by exact arithmetic, ties to the even pattern.
func nearest16(h half, x float32, largest uint16) uint16 {
	sign := uint16(0)
	if math.Signbit(float64(x)) {
		sign, x = 0x8000, -x
	}
	lo, hi := uint16(0), largest+1 // widen(lo) <= x < widen(hi), treating largest+1 as one step further
	value := func(v uint16) *big.Float {
		if v == largest+1 {
			a, b := float64(h.widen(largest)), float64(h.widen(largest-1))
			return big.NewFloat(a + (a - b))
		}
		return big.NewFloat(float64(h.widen(v)))
	}
	exact := big.NewFloat(float64(x))
	if exact.Cmp(value(hi)) >= 0 {
		return sign | hi
	}
	for hi-lo > 1 {
		if mid := lo + (hi-lo)/2; value(mid).Cmp(exact) <= 0 {
			lo = mid
		} else {
			hi = mid
		}
	}
	below := new(big.Float).SetPrec(200).Sub(exact, value(lo))
	above := new(big.Float).SetPrec(200).Sub(value(hi), exact)
	if c := below.Cmp(above); c > 0 || c == 0 && hi&1 == 0 {
		return sign | hi
	}
	return sign | lo
}

func TestNarrowRoundsToNearestEven(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 9))
	var xs []float32
	for range 20000 {
		x := math.Float32frombits(rng.Uint32())
		if x == x && x-x == 0 {
			xs = append(xs, x)
		}
		xs = append(xs, float32(math.Exp2(rng.Float64()*45-27))) // the range of float16
	}
	for _, h := range []half{bf16, f16} {
		for i := range uint16(0x7bff) { // exact ties between neighbours
			xs = append(xs, h.widen(i)+(h.widen(i+1)-h.widen(i))/2)
		}
		largest := map[half]uint16{bf16: 0x7f7f, f16: 0x7bff}[h]
		want := make([]uint16, len(xs))
		for i, x := range xs {
			want[i] = nearest16(h, x, largest)
		}
		check := func(t *testing.T) {
			got := make([]uint16, len(xs))
			narrow(got, xs, h)
			for i := range xs {
				require.Equal(t, want[i], got[i], "format %d, %v", h, xs[i])
			}
		}
		atGo(func() { check(t) })
		eachLevel(t, check)
	}
}

func TestHalvesMatchTwins(t *testing.T) {
	eachLevel(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(3, 3))
		for _, h := range []half{bf16, f16} {
			eachSlice(func(start, n int) {
				srcs := make([][]uint16, n%5)
				for i := range srcs {
					srcs[i] = make([]uint16, start+n)[start:]
					for j := range srcs[i] {
						srcs[i][j] = uint16(rng.Uint32())
						if rng.IntN(4) > 0 { // mostly numbers of like size, which round when added
							srcs[i][j] = h.narrow(float32(rng.NormFloat64()))
						}
					}
				}
				want, got := make([]uint16, n), make([]uint16, start+n+9)
				atGo(func() { sumHalves(want, srcs, h) })
				sumHalves(got[start:start+n], srcs, h)
				for i, w := range want {
					g := got[start+i]
					require.True(t, w == g || isNaN16(h, w) && isNaN16(h, g), "at %d of %d: %#x, %#x", i, n, w, g)
				}
				require.Equal(t, make([]uint16, 9), got[start+n:])
			})
		}
	})
}
