package simd

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	nan = float32(math.NaN())
	inf = float32(math.Inf(1))
)

// maxLen covers every tail of every loop: groups have at most 64 values.
const maxLen = 130

// eachLevel runs a test at every assembly level; one that this processor lacks is skipped with the reason.
func eachLevel(t *testing.T, test func(t *testing.T)) {
	for level := AVX2; level <= AVX512; level++ {
		t.Run(level.String(), func(t *testing.T) {
			if level > Supported() {
				t.Skipf("needs a processor with %v; this one has %v", level, Supported())
			}
			defer Force(level)()
			test(t)
		})
	}
}

// atGo runs fn with the pure-Go twins.
func atGo(fn func()) {
	defer Force(Go)()
	fn()
}

// eachSlice calls test for every length and for starts off the vector alignment; with -short, for one start a length.
func eachSlice(test func(start, n int)) {
	starts := []int{0, 1, 3, 7}
	for n := range maxLen + 1 {
		if testing.Short() {
			test(starts[n%len(starts)], n)
			continue
		}
		for _, start := range starts {
			test(start, n)
		}
	}
}

// special values are scattered over random ones, so that each lane and each tail sees them.
var special = []float32{
	0, float32(math.Copysign(0, -1)), inf, -inf, nan, 1e-42, -1e-42, math.MaxFloat32, -math.MaxFloat32,
	88.7, 88.8, 89, 100, -86.9, -87, -87.5, -88, -104, 65504, 65519.99, 65520, 6e-8, 2.9e-8, 6.1e-5,
}

func random(rng *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(rng.NormFloat64() * math.Exp(2*rng.NormFloat64()))
		if rng.IntN(12) == 0 {
			x[i] = special[rng.IntN(len(special))]
		}
	}
	return x
}

func requireSame(t *testing.T, want, got []float32, msg string) {
	t.Helper()
	require.Len(t, got, len(want))
	for i, w := range want {
		if g := got[i]; math.Float32bits(w) != math.Float32bits(g) && (w == w || g == g) {
			require.Failf(t, "different bits", "%s: at %d: want %v, got %v", msg, i, w, g)
		}
	}
}

// An op is any operation on up to four arrays, seen as a function that changes them in place and may return a number.
type op struct {
	name string
	run  func(x [4][]float32) float32
}

var ops = []op{
	{"Add", func(x [4][]float32) float32 { Add(x[0], x[1]); return 0 }},
	{"Mul", func(x [4][]float32) float32 { Mul(x[0], x[1]); return 0 }},
	{"Scale", func(x [4][]float32) float32 { Scale(x[0], 1.7); return 0 }},
	{"AxpyExact", func(x [4][]float32) float32 { AxpyExact(x[0], x[1], 0.3); return 0 }},
	{"RMSNorm", func(x [4][]float32) float32 { RMSNorm(x[0], x[1], x[2], 1e-6); return 0 }},
	{"RMSNorm in place", func(x [4][]float32) float32 { RMSNorm(x[0], x[0], x[2], 1e-6); return 0 }},
	{"Rotate", func(x [4][]float32) float32 { Rotate(x[0], x[1], x[2], x[3]); return 0 }},
	{"Exp", func(x [4][]float32) float32 { Exp(x[0], x[1]); return 0 }},
	{"Exp in place", func(x [4][]float32) float32 { Exp(x[0], x[0]); return 0 }},
	{"SoftmaxExp", func(x [4][]float32) float32 { return SoftmaxExp(x[0], x[1], 2.5) }},
	{"SwiGLU", func(x [4][]float32) float32 { SwiGLU(x[0], x[1], x[2]); return 0 }},
	{"SwiGLU in place", func(x [4][]float32) float32 { SwiGLU(x[1], x[1], x[2]); return 0 }},
	{"AddRMSNorm", func(x [4][]float32) float32 { AddRMSNorm(x[0], x[1], x[3], x[2], 1e-6); return 0 }},
	{"AddRMSNorm in place", func(x [4][]float32) float32 { AddRMSNorm(x[0], x[1], x[0], x[2], 1e-6); return 0 }},
	{"AddSumSquares", func(x [4][]float32) float32 { return AddSumSquares(x[0], x[1]) }},
	{"SumInto 3", func(x [4][]float32) float32 { SumInto(x[0], x[1:]); return 0 }},
	{"SumInto in place", func(x [4][]float32) float32 { SumInto(x[2], x[:]); return 0 }},
	{"SumInto 0", func(x [4][]float32) float32 { SumInto(x[0], nil); return 0 }},
	{"Dot", func(x [4][]float32) float32 { return Dot(x[0], x[1]) }},
	{"SumSquares", func(x [4][]float32) float32 { return SumSquares(x[0]) }},
	{"Max", func(x [4][]float32) float32 { return Max(x[0]) + 0 }},
	{"MaxAbs", func(x [4][]float32) float32 { return MaxAbs(x[0]) }},
}

// Every operation gives the bits of its twin for every length and start, and leaves what lies around alone.
func TestOpsMatchTwins(t *testing.T) {
	for _, o := range ops {
		t.Run(o.name, func(t *testing.T) {
			eachLevel(t, func(t *testing.T) {
				rng := rand.New(rand.NewPCG(1, 2))
				eachSlice(func(start, n int) {
					for _, clean := range []bool{false, true} {
						var all, twin, want, got [4][]float32
						for i := range all {
							all[i] = random(rng, start+n+9)
							for j, v := range all[i] {
								if clean && (v != v || v-v != 0) { // NaN and infinities hide other errors in sums
									all[i][j] = float32(j)
								}
							}
							twin[i] = slices.Clone(all[i])
							want[i], got[i] = twin[i][start:start+n], all[i][start:start+n:start+n]
						}
						var r float32
						atGo(func() { r = o.run(want) })
						s := o.run(got)
						msg := fmt.Sprintf("start=%d n=%d", start, n)
						requireSame(t, []float32{r}, []float32{s}, msg+" result")
						for i := range all {
							requireSame(t, twin[i], all[i], fmt.Sprintf("%s array %d", msg, i))
						}
					}
				})
			})
		})
	}
}

func TestTwinsByHand(t *testing.T) {
	atGo(func() {
		x := []float32{1, 2, 3}
		Add(x, []float32{10, 20, 30})
		require.Equal(t, []float32{11, 22, 33}, x)
		Mul(x, []float32{2, 0, -1})
		require.Equal(t, []float32{22, 0, -33}, x)
		Scale(x, 0.5)
		require.Equal(t, []float32{11, 0, -16.5}, x)
		AxpyExact(x, []float32{1, 1, 2}, 3)
		require.Equal(t, []float32{14, 3, -10.5}, x)
		require.Equal(t, float32(32), Dot([]float32{1, 2, 3}, []float32{4, 5, 6}))
		require.Equal(t, float32(14), Max(x))
		require.Equal(t, float32(14), MaxAbs(x))
		require.Equal(t, -inf, Max(nil))
		lo, hi := []float32{1, 2}, []float32{3, 4}
		Rotate(lo, hi, []float32{0, 1}, []float32{1, 0})
		require.Equal(t, []float32{-3, 2, 1, 4}, append(lo, hi...))
		y := make([]float32, 2)
		RMSNorm(y, []float32{3, 5}, []float32{17, 34}, 0) // mean square 17
		require.InDeltaSlice(t, []float64{3 * math.Sqrt(17), 10 * math.Sqrt(17)}, []float64{float64(y[0]), float64(y[1])}, 1e-5)
		SumInto(y, [][]float32{{1, -1}, {2, 4}, {3, 0}})
		require.Equal(t, []float32{6, 3}, y)
	})
}

// The order of a sum over ranks is the rank order, and it starts from +0.
func TestSumIntoOrder(t *testing.T) {
	check := func(t *testing.T) {
		negZero := float32(math.Copysign(0, -1))
		dst := make([]float32, 3)
		SumInto(dst, [][]float32{{1e8, -1e8, negZero}, {1, 1, negZero}, {-1e8, 1e8, negZero}})
		require.Equal(t, []float32{0, 0, 0}, dst)
		require.False(t, math.Signbit(float64(dst[2])))
		SumInto(dst, [][]float32{{1e8, -1e8, negZero}, {-1e8, 1e8, negZero}, {1, 1, negZero}})
		require.Equal(t, []float32{1, 1, 0}, dst)
	}
	atGo(func() { check(t) })
	eachLevel(t, check)
}

func TestNaNPropagates(t *testing.T) {
	check := func(t *testing.T) {
		for _, n := range []int{1, 7, 8, 31, 70} {
			for at := range n {
				x := make([]float32, n)
				x[at] = nan
				for name, r := range map[string]float32{
					"Max": Max(x), "MaxAbs": MaxAbs(x), "Dot": Dot(x, make([]float32, n)), "SumSquares": SumSquares(x),
					"SoftmaxExp": SoftmaxExp(make([]float32, n), x, 0),
				} {
					require.True(t, r != r, "%s of %d values, NaN at %d", name, n, at)
				}
				Exp(x, x)
				for i, v := range x {
					if i == at {
						require.True(t, v != v)
					} else {
						require.Equal(t, float32(1), v)
					}
				}
			}
		}
	}
	atGo(func() { check(t) })
	eachLevel(t, check)
}

func TestExpIsAccurate(t *testing.T) {
	worst, step := 0.0, float32(0.00037)
	if testing.Short() {
		step = 0.0037
	}
	for x := float32(-87); x <= 88.722; x += step {
		want := math.Exp(float64(x))
		ulp := float64(math.Nextafter32(float32(want), inf)) - float64(float32(want))
		worst = max(worst, math.Abs(float64(exp32(x))-want)/ulp)
	}
	t.Logf("worst error %.3f ulp", worst)
	require.Less(t, worst, 2.0)
	require.Zero(t, exp32(-87.1))
	require.Zero(t, exp32(-inf))
	require.Equal(t, inf, exp32(89))
	require.Equal(t, inf, exp32(inf))
	require.Less(t, exp32(expMax), inf)
	require.Equal(t, float32(1), exp32(0))
}

func TestShortInputPanics(t *testing.T) {
	short, long := make([]float32, 3), make([]float32, 4)
	require.Panics(t, func() { Add(long, short[:3:3]) })
	require.Panics(t, func() { SumInto(long, [][]float32{long, short[:3:3]}) })
	require.Panics(t, func() { SwiGLU(long, long, short[:3:3]) })
}

func TestNothingIsAllocated(t *testing.T) {
	x := make([]float32, 100)
	srcs := [][]float32{x, x, x}
	h := make([]uint16, 100)
	hs := [][]uint16{h, h}
	require.Zero(t, testing.AllocsPerRun(100, func() {
		var in [4][]float32
		for i := range in {
			in[i] = x
		}
		for _, o := range ops {
			o.run(in)
		}
		SumInto(x, srcs)
		SumIntoBF16(h, hs)
		SumIntoF16(h, hs)
		BF16ToF32(x, h)
		F32ToF16(h, x)
	}))
}
