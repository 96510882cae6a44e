package exchange

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/dtype"
)

// fma is a fused multiply-add of float32: rounded once. Product and sum are exact in float64, but for a last bit that is made odd
// when something is behind it, so that the second rounding cannot tell.
func fma(a, b, c float32) float32 {
	p, q := float64(a)*float64(b), float64(c)
	s := p + q
	t := s - p
	if rest := (p - (s - t)) + (q - t); rest != 0 {
		if bits := math.Float64bits(s); bits&1 == 0 {
			if (rest > 0) == (s > 0) {
				bits++
			} else {
				bits--
			}
			s = math.Float64frombits(bits)
		}
	}
	return float32(s)
}

// ratio is quant.cu's.
func ratio(v, scale, inverse float32) float32 {
	q := v * inverse
	q = fma(-fma(q, scale, -v), inverse, q)
	return fma(-fma(q, scale, -v), inverse, q)
}

const leastScale = 0x1p-90 // quant.cu's LEAST_SCALE

// sameRatio fails unless e4m3 of ratio is that of a division.
func sameRatio(t *testing.T, v, scale float32) {
	got, want := dtype.ToE4M3(ratio(v, scale, 1/scale)), dtype.ToE4M3(v/scale)
	if got != want {
		t.Fatalf("%x / %x: %#x by products, %#x by division", v, scale, got, want)
	}
}

// TestRatio compares quotients by products with divisions, as e4m3: all bf16 numbers over the scales that groups of bf16 numbers have,
// and all kinds of fp32 numbers over fp32 scales.
func TestRatio(t *testing.T) {
	step := 1
	if testing.Short() {
		step = 37
	}
	// Mantissas of v and of the group's largest number, at all exponents of their difference that are not 0 in e4m3, and some that are.
	for most := 0; most < 128; most += step {
		for _, e := range []int{-80, -17, 0, 1, 99, 127} {
			scale := scaleOf([]float32{math.Float32frombits(uint32(e+127)<<23 | uint32(most)<<16)})
			for m := range 128 {
				for below := range 24 {
					if e-below > -127 {
						v := math.Float32frombits(uint32(e-below+127)<<23 | uint32(m)<<16)
						if v <= 448*scale {
							sameRatio(t, v, scale)
						}
					}
				}
			}
		}
	}
	// All bf16 numbers over scales of all exponents.
	for e := -90; e < 119; e += 1 + 8*(step-1)/36 {
		for _, m := range []uint32{0, 1, 0x249249, 0x5b6db6, 0x7ffffe, 0x7fffff} {
			scale := math.Float32frombits(uint32(e+127)<<23 | m)
			for i := 0; i < 1<<16; i += 1 + 12*(step-1) + int(m%7) {
				v := math.Float32frombits(uint32(i) << 16)
				if a := max(v, -v); a <= 448*scale {
					sameRatio(t, v, scale)
				}
			}
		}
	}
}

// TestRatioNearTies tries fp32 numbers whose quotients lie next to the middle between two e4m3 numbers, and subnormal ones.
func TestRatioNearTies(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	n := 3_000_000
	if testing.Short() {
		n = 100_000
	}
	for range n {
		scale := math.Float32frombits(uint32(37+rng.IntN(209))<<23 | rng.Uint32()&0x7fffff)
		switch rng.IntN(4) {
		case 0: // next to a power of two, or to an eighth
			scale = math.Float32frombits(math.Float32bits(scale)&^0xfffff + uint32(rng.IntN(33)) - 16)
		case 1: // as of a group
			scale = scaleOf([]float32{448 * scale})
		}
		if scale < leastScale || scale > math.MaxFloat32/448 {
			continue
		}
		// A number of five bits times the scale, and its neighbours.
		middle := math.Ldexp(float64(1+rng.IntN(31)), rng.IntN(16)-12)
		v := float32(min(middle, 448) * float64(scale))
		bits := math.Float32bits(v) + uint32(rng.IntN(9)) - 4
		if v = math.Float32frombits(bits); v <= 448*scale && v == v {
			sameRatio(t, v, scale)
			sameRatio(t, -v, scale)
		}
		tiny := math.Float32frombits(rng.Uint32() & 0x807fffff >> rng.IntN(23) & 0x807fffff)
		sameRatio(t, tiny, scale)
	}
	for _, scale := range []float32{leastScale, 1, 0x1p119} {
		for _, v := range []float32{0, float32(math.Copysign(0, -1)), math.SmallestNonzeroFloat32, -math.SmallestNonzeroFloat32} {
			sameRatio(t, v, scale)
		}
	}
	require.True(t, math.Signbit(float64(ratio(float32(math.Copysign(0, -1)), 3, 1/float32(3)))), "the sign of -0")
}

// TestFMA knows what a second rounding would do.
func TestFMA(t *testing.T) {
	one := float32(1)
	require.Equal(t, one+0x1p-23, fma(1+0x1p-23, 1, 0x1p-60))
	require.Equal(t, one+0x1p-23, fma(0x1p-24, 1+0x1p-20, one), "just above the middle")
	require.Equal(t, one, fma(0x1p-24, 1-0x1p-20, one), "just below it")
	require.Equal(t, one+0x1p-23, fma(0x1p-24, 1, math.Float32frombits(math.Float32bits(one)))+0x1p-23, "on it, to even")
	require.Equal(t, one+0x1p-23, fma(0x1p-50, 0x1p-50, math.Nextafter32(one, 2)))
}
