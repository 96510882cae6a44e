package moe_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// poisoned returns n values of NaN.
func poisoned(n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(math.NaN())
	}
	return x
}

func randomRows(n int, seed uint64) []float32 {
	rng := rand.New(rand.NewPCG(seed, 3))
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(rng.NormFloat64())
	}
	return x
}

// requireSame wants equal values (==), and NaN where the other has NaN.
func requireSame(t testing.TB, want, got []float32, what string) {
	t.Helper()
	require.Len(t, got, len(want), what)
	for i := range want {
		if want[i] != got[i] && !(want[i] != want[i] && got[i] != got[i]) {
			t.Fatalf("%s: value %d is %v, want %v", what, i, got[i], want[i])
		}
	}
}

// requireNear wants |got - want| <= tol, NaN failing.
func requireNear(t testing.TB, want, got []float32, tol float64, what string) {
	t.Helper()
	require.Len(t, got, len(want), what)
	worst := 0.0
	for i := range want {
		d := math.Abs(float64(want[i]) - float64(got[i]))
		if !(d <= tol) {
			t.Fatalf("%s: value %d is %v, want %v within %v", what, i, got[i], want[i], tol)
		}
		worst = max(worst, d)
	}
	t.Logf("%s: largest difference %.2g", what, worst)
}
