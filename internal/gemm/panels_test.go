package gemm

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/internal/simd"
)

// Panels with other things between them give the bits of the reference, touch no column of C past n, and read nothing but
// the panels: the gaps hold NaN.
func TestPanels(t *testing.T) {
	eachLevel(t, func(t *testing.T, level simd.Level) {
		rng := rand.New(rand.NewPCG(21, 22))
		for _, n := range []int{0, 1, 8, 9, 16, 17, 32, 40, 64, 67} {
			for _, m := range []int{0, 1, 2, 5, 13} {
				for _, k := range []int{0, 1, 7, 32} {
					stride := k*PanelWidth + PanelWidth*rng.IntN(3)
					lda, ldc := k+2, n+3
					a, w := normal(rng, max(m*lda, 1)), normal(rng, n*k)
					panels := filled(max((n+15)/16*stride, 1), poison)
					for col := range (n + 15) / 16 * 16 {
						for l := range k {
							at := col/PanelWidth*stride + l*PanelWidth + col%PanelWidth
							panels[at] = 0
							if col < n {
								panels[at] = w[col*k+l]
							}
						}
					}
					for _, accumulate := range []bool{false, true} {
						got := normal(rng, max(m*ldc, 1))
						want := slices.Clone(got)
						reference(level, want, ldc, a, lda, m, w, n, k, k, accumulate)
						Panels(got, ldc, a, lda, m, k, panels, stride, n, accumulate)
						requireSameBits(t, want, got, fmt.Sprintf("m=%d n=%d k=%d stride=%d accumulate=%t", m, n, k, stride, accumulate))
					}
				}
			}
		}
	})
}

func TestPanelsRefusesShortSlices(t *testing.T) {
	const m, k, n, stride = 2, 4, 20, 80
	c, a, p := make([]float32, m*n), make([]float32, m*k), make([]float32, stride+k*PanelWidth)
	Panels(c, n, a, k, m, k, p, stride, n, false)
	require.Panics(t, func() { Panels(c[:m*n-1], n, a, k, m, k, p, stride, n, false) })
	require.Panics(t, func() { Panels(c, n, a[:m*k-1], k, m, k, p, stride, n, false) })
	require.Panics(t, func() { Panels(c, n, a, k, m, k, p[:len(p)-1], stride, n, false) })
	require.Panics(t, func() { Panels(c, n, a, k, m, k, p, -1, n, false) })
}
