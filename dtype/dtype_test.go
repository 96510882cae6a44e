package dtype

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNamesAndSizes(t *testing.T) {
	for _, d := range All() {
		got, err := Parse(d.String())
		require.NoError(t, err)
		require.Equal(t, d, got)
		require.Positive(t, d.Size())
	}
	_, err := Parse("f64")
	require.ErrorContains(t, err, `"f64"`)
	require.False(t, Invalid.Valid())
	require.Equal(t, BF16, Of[BFloat16]())
	require.Equal(t, F8E5M2, Of[E5M2]())
	require.Len(t, Bytes([]int64{1, 2}), 16)
}

// Every pattern of a small format widens to a float32 and narrows back to itself; NaN stays NaN.
func TestEveryPatternRoundTrips(t *testing.T) {
	check := func(name string, n int, widen func(int) float32, narrow func(float32) int) {
		for i := range n {
			f := widen(i)
			back := narrow(f)
			if f != f {
				require.True(t, math.IsNaN(float64(widen(back))), "%s %#x", name, i)
				continue
			}
			if name == "e4m3" || !math.IsInf(float64(f), 0) {
				require.Equal(t, i, back, "%s %#x = %g", name, i, f)
			}
		}
	}
	check("bf16", 1<<16, func(i int) float32 { return BFloat16(i).Float32() }, func(f float32) int { return int(ToBFloat16(f)) })
	check("f16", 1<<16, func(i int) float32 { return Float16(i).Float32() }, func(f float32) int { return int(ToFloat16(f)) })
	check("e4m3", 256, func(i int) float32 { return E4M3(i).Float32() }, func(f float32) int { return int(ToE4M3(f)) })
	check("e5m2", 256, func(i int) float32 { return E5M2(i).Float32() }, func(f float32) int { return int(ToE5M2(f)) })
}

// Between two neighbours the nearer wins, and the middle goes to the even one.
func TestRoundsToNearestEven(t *testing.T) {
	check := func(name string, n int, widen func(int) float32, narrow func(float32) int) {
		for i := 0; i+1 < n; i++ {
			lo, hi := widen(i), widen(i+1)
			if lo != lo || hi != hi || math.IsInf(float64(hi), 0) {
				continue
			}
			mid := float32((float64(lo) + float64(hi)) / 2)
			even := i
			if i&1 == 1 {
				even = i + 1
			}
			require.Equal(t, even, narrow(mid), "%s middle of %g and %g", name, lo, hi)
			require.Equal(t, i, narrow(math.Nextafter32(mid, lo)), "%s below the middle of %g and %g", name, lo, hi)
			require.Equal(t, i+1, narrow(math.Nextafter32(mid, hi)), "%s above the middle of %g and %g", name, lo, hi)
		}
	}
	check("f16", 1<<15, func(i int) float32 { return Float16(i).Float32() }, func(f float32) int { return int(ToFloat16(f)) })
	check("bf16", 0x7f80, func(i int) float32 { return BFloat16(i).Float32() }, func(f float32) int { return int(ToBFloat16(f)) })
	check("e4m3", 128, func(i int) float32 { return E4M3(i).Float32() }, func(f float32) int { return int(ToE4M3(f)) })
	check("e5m2", 128, func(i int) float32 { return E5M2(i).Float32() }, func(f float32) int { return int(ToE5M2(f)) })
}

func TestLimits(t *testing.T) {
	inf := float32(math.Inf(1))
	require.Equal(t, float32(448), ToE4M3(1e9).Float32())
	require.Equal(t, float32(-448), ToE4M3(-inf).Float32())
	require.Equal(t, float32(57344), ToE5M2(1e9).Float32())
	require.Equal(t, inf, ToE5M2(inf).Float32())
	require.Equal(t, inf, ToFloat16(65520).Float32())
	require.Equal(t, float32(65504), ToFloat16(65519).Float32())
	require.Equal(t, inf, ToBFloat16(math.MaxFloat32).Float32())
	require.True(t, math.Signbit(float64(ToFloat16(float32(math.Copysign(0, -1))).Float32())))
}

func TestBulkConversion(t *testing.T) {
	src := []float32{0, 1, -2, 3, 100}
	for _, d := range All() {
		if d == U8 {
			continue
		}
		raw := make([]byte, len(src)*d.Size())
		require.NoError(t, FromFloat32s(raw, src, d))
		back := make([]float32, len(src))
		require.NoError(t, Float32s(back, raw, d))
		if d == F8E4M3 || d == F8E5M2 {
			require.Equal(t, src[:4], back[:4])
			continue
		}
		require.Equal(t, src, back, d)
		require.Error(t, Float32s(make([]float32, 6), raw, d))
		require.Error(t, FromFloat32s(raw, make([]float32, 6), d))
	}
}

func Example() {
	x := ToBFloat16(3.14159)
	fmt.Println(x.Float32(), BF16, BF16.Size())
	// Output: 3.140625 bf16 2
}
