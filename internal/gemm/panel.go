package gemm

// Panel computes C[m, n] = A[m, k] · panel, or adds to C when accumulate is set, for one panel of 16 columns of which n are
// valid. The panel is [k][16] in row order; what lies past column n of it is read and ignored. It serves attention on a cache that
// stores keys and values in this layout, so it starts fast, runs on the calling goroutine and allocates nothing. The
// bits are those of [Packed.Mul]. It panics if a slice is too short or n > 16.
func Panel(c []float32, ldc int, a []float32, lda, m, k int, panel []float32, n int, accumulate bool) {
	if n > PanelWidth {
		checkMatrix("panel", PanelWidth, 1, n, n)
	}
	checkMatrix("a", len(a), m, k, lda)
	checkMatrix("c", len(c), m, n, ldc)
	checkMatrix("panel", len(panel), k, PanelWidth, PanelWidth)
	v := view{c: c, ldc: ldc, a: a, lda: lda, m: m, n: n, panels: panel, k: k, accumulate: accumulate}
	v.multiply()
}
