package gemm

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/weftgo/weft/internal/race"
	"github.com/weftgo/weft/internal/simd"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// eachLevel runs a test at every level there is; one that this processor lacks is skipped with the reason.
func eachLevel(t *testing.T, test func(t *testing.T, level simd.Level)) {
	for level := simd.Go; level <= simd.AVX512; level++ {
		t.Run(level.String(), func(t *testing.T) {
			if level > simd.Supported() {
				t.Skipf("needs a processor with %v; this one has %v", level, simd.Supported())
			}
			defer simd.Force(level)()
			test(t, level)
		})
	}
}

var poison = float32(math.NaN())

// normal returns values whose products and sums round, so that the order of operations shows.
func normal(rng *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(rng.NormFloat64())
	}
	return x
}

func filled(n int, v float32) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = v
	}
	return x
}

// reference is Naive at the assembly levels and a plain loop, each product rounded, at the Go level.
func reference(level simd.Level, c []float32, ldc int, a []float32, lda, m int, w []float32, n, k, ldw int, accumulate bool) {
	if level != simd.Go {
		Naive(c, ldc, a, lda, m, w, n, k, ldw, accumulate)
		return
	}
	for i := range m {
		for j := range n {
			var acc float32
			if accumulate {
				acc = c[i*ldc+j]
			}
			for l := range k {
				acc += float32(a[i*lda+l] * w[j*ldw+l])
			}
			c[i*ldc+j] = acc
		}
	}
}

// requireSameBits compares bit patterns, any NaN being equal to any other.
func requireSameBits(t require.TestingT, want, got []float32, msg string) {
	require.Len(t, got, len(want))
	for i := range want {
		w, g := want[i], got[i]
		if math.Float32bits(w) != math.Float32bits(g) && (w == w || g == g) {
			require.Failf(t, "different bits", "%s: at %d: want %v, got %v", msg, i, w, g)
		}
	}
}

func TestMulHasTheBitsOfTheDefinition(t *testing.T) {
	eachLevel(t, func(t *testing.T, level simd.Level) {
		rng := rand.New(rand.NewPCG(1, 2))
		ks := []int{0, 1, 3, 4, 5, 10, 33}
		if testing.Short() {
			ks = []int{0, 5}
		}
		for _, m := range []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 15, 16, 17, 23, 97} {
			for _, n := range []int{0, 1, 4, 7, 8, 9, 15, 16, 17, 20, 31, 32, 33, 64, 71, 130} {
				for _, k := range ks {
					checkMul(t, rng, level, m, n, k)
				}
			}
		}
		for _, s := range [][3]int{{7, 20, 383}, {3, 64, 385}, {100, 33, 800}, {200, 130, 50}} {
			checkMul(t, rng, level, s[0], s[1], s[2])
		}
	})
}

// checkMul compares Mul with the definition, with gaps between rows that must stay untouched.
func checkMul(t *testing.T, rng *rand.Rand, level simd.Level, m, n, k int) {
	lda, ldc, ldw := k+rng.IntN(3), n+rng.IntN(3), k+rng.IntN(3)
	a, w := normal(rng, m*lda), normal(rng, n*ldw)
	p := Pack(w, n, k, ldw)
	for _, accumulate := range []bool{false, true} {
		want := filled(m*ldc, poison)
		if accumulate {
			for i := range m {
				copy(want[i*ldc:i*ldc+n], normal(rng, n))
			}
		}
		got := append([]float32(nil), want...)
		reference(level, want, ldc, a, lda, m, w, n, k, ldw, accumulate)
		p.Mul(got, ldc, a, lda, m, accumulate)
		requireSameBits(t, want, got, fmt.Sprintf("m=%d n=%d k=%d accumulate=%v", m, n, k, accumulate))
	}
}

func TestMulRowsGathersAndZeroes(t *testing.T) {
	eachLevel(t, func(t *testing.T, level simd.Level) {
		rapid.Check(t, func(t *rapid.T) {
			n, k := rapid.IntRange(1, 70).Draw(t, "n"), rapid.IntRange(0, 40).Draw(t, "k")
			numA := rapid.IntRange(1, 30).Draw(t, "numA")
			rows := rapid.SliceOfN(rapid.Int32Range(-1, int32(numA-1)), 0, 250).Draw(t, "rows")
			accumulate := rapid.Bool().Draw(t, "accumulate")
			rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
			lda, ldc := k+1, n+2
			a, w := normal(rng, numA*lda), normal(rng, n*k)
			want := filled(len(rows)*ldc, poison)
			for i, r := range rows {
				row := want[i*ldc : i*ldc+n]
				switch {
				case accumulate:
					copy(row, normal(rng, n))
					row[0] = float32(math.Copysign(0, -1)) // a zero row must not even touch the sign
				case r < 0:
					clear(row)
				}
			}
			got := append([]float32(nil), want...)
			for i, r := range rows {
				if r >= 0 {
					reference(level, want[i*ldc:], ldc, a[int(r)*lda:], lda, 1, w, n, k, k, accumulate)
				}
			}
			Pack(w, n, k, k).MulRows(got, ldc, a, lda, rows, accumulate)
			requireSameBits(t, want, got, "MulRows")
		})
	})
}

func TestPanel(t *testing.T) {
	eachLevel(t, func(t *testing.T, level simd.Level) {
		rng := rand.New(rand.NewPCG(3, 4))
		for _, m := range []int{0, 1, 2, 5, 6, 8, 13} {
			for _, n := range []int{0, 1, 2, 3, 7, 8, 9, 12, 15, 16, 17, 40, 64, 70} {
				for _, k := range []int{0, 1, 16, 24, 101} {
					panel := normal(rng, (n+15)/16*k*PanelWidth)
					w := filled(n*k, 0)
					for j := range n {
						for i := range k {
							w[j*k+i] = panel[(j/16*k+i)*PanelWidth+j%16]
						}
					}
					a := normal(rng, m*(k+3))
					for _, accumulate := range []bool{false, true} {
						want := filled(m*72, 0.5)
						got := append([]float32(nil), want...)
						reference(level, want, 72, a, k+3, m, w, n, k, k, accumulate)
						Panel(got, 72, a, k+3, m, k, panel, n, accumulate)
						requireSameBits(t, want, got, fmt.Sprintf("m=%d n=%d k=%d %v", m, n, k, accumulate))
					}
				}
			}
		}
	})
}

// A row's bits depend neither on the rows beside it, nor on gathering, nor on how many goroutines share the work.
func TestRowsAreIndependent(t *testing.T) {
	eachLevel(t, func(t *testing.T, level simd.Level) {
		const m, n, k = 150, 200, 100
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4))
		rng := rand.New(rand.NewPCG(11, 12))
		a, p := normal(rng, m*k), Pack(normal(rng, n*k), n, k, k)
		all := make([]float32, m*n)
		p.Mul(all, n, a, k, m, false)
		rows := make([]int32, m)
		for i := range rows {
			rows[i] = int32(rng.IntN(m))
		}
		gathered := make([]float32, m*n)
		p.MulRows(gathered, n, a, k, rows, false)
		for i, r := range rows {
			requireSameBits(t, all[int(r)*n:int(r+1)*n], gathered[i*n:(i+1)*n], "gathered")
		}
		for numRows := 1; numRows < 20; numRows++ {
			for r0 := 0; r0+numRows <= m; r0 += 29 {
				part := make([]float32, numRows*n)
				p.Mul(part, n, a[r0*k:], k, numRows, false)
				requireSameBits(t, all[r0*n:(r0+numRows)*n], part, "part")
			}
		}
	})
}

// A NaN or infinity in one row must not leak into another, also not through columns that only pad a panel.
func TestNaNStaysInItsRow(t *testing.T) {
	eachLevel(t, func(t *testing.T, level simd.Level) {
		const m, n, k = 13, 19, 24
		rng := rand.New(rand.NewPCG(5, 6))
		a, w := normal(rng, m*k), normal(rng, n*k)
		clean, dirty := make([]float32, m*n), make([]float32, m*n)
		p := Pack(w, n, k, k)
		p.Mul(clean, n, a, k, m, false)
		a[4*k+7] = poison
		p.Mul(dirty, n, a, k, m, false)
		for i := range m {
			for j := range n {
				if i == 4 {
					require.True(t, dirty[i*n+j] != dirty[i*n+j])
				} else {
					require.Equal(t, clean[i*n+j], dirty[i*n+j])
				}
			}
		}
	})
}

func TestShortSlicesPanic(t *testing.T) {
	p := Pack(make([]float32, 6), 2, 3, 3)
	require.PanicsWithValue(t, "gemm: a holds 5 values, [2, 3] at distance 3 needs 6",
		func() { p.Mul(make([]float32, 4), 2, make([]float32, 5), 3, 2, false) })
	require.PanicsWithValue(t, "gemm: c holds 3 values, [2, 2] at distance 2 needs 4",
		func() { p.Mul(make([]float32, 3), 2, make([]float32, 6), 3, 2, false) })
	require.PanicsWithValue(t, "gemm: rows[1] = 2 at distance 3 needs 9 values of a, which has 6",
		func() { p.MulRows(make([]float32, 4), 2, make([]float32, 6), 3, []int32{0, 2}, false) })
	require.Panics(t, func() { Pack(make([]float32, 5), 2, 3, 3) })
	require.Panics(t, func() { Panel(make([]float32, 99), 17, make([]float32, 9), 3, 1, 3, make([]float32, 51), 17, false) })
}

func TestNothingIsAllocated(t *testing.T) {
	for _, m := range []int{1, 50, 500} {
		p := Pack(make([]float32, 192*192), 192, 192, 192)
		a, c := make([]float32, m*192), make([]float32, m*192)
		rows := make([]int32, m)
		panel := make([]float32, 64*PanelWidth)
		require.Zero(t, testing.AllocsPerRun(20, func() { Panel(c, 192, a, 192, m, 64, panel, 16, false) }))
		if race.Enabled {
			continue // it makes pools forget: of 400 runs of this test 19 failed
		}
		require.LessOrEqual(t, testing.AllocsPerRun(20, func() { p.Mul(c, 192, a, 192, m, false) }), 0.5)
		require.LessOrEqual(t, testing.AllocsPerRun(20, func() { p.MulRows(c, 192, a, 192, rows, true) }), 0.5)
	}
}

// fma32 is the yardstick of all the others, so it is checked against big-number arithmetic's answer on hard cases.
func TestFMA32RoundsOnce(t *testing.T) {
	x, y := math.Float32frombits(0x3f800001), math.Float32frombits(0x3f800001) // (1+e)^2 = 1 + 2e + e^2
	require.Equal(t, math.Float32frombits(0x3f800002), fma32(x, y, 0))
	require.Equal(t, math.Float32frombits(0x3f800003), fma32(x, y, math.Float32frombits(0x33800000))) // + e/2: just over the tie
	rng := rand.New(rand.NewPCG(7, 8))
	for range 20000 {
		x, y := float32(rng.NormFloat64()), float32(rng.NormFloat64())
		z := float32(rng.NormFloat64() * math.Exp2(float64(rng.IntN(60)-30)))
		require.Equal(t, bigFMA(x, y, z), fma32(x, y, z))
	}
}
