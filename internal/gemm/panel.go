package gemm

// Panel computes C[m, n] = A[m, k] · panels, or adds to C when accumulate is set. The panels are [ceil(n/16)][k][16] in row order,
// one for n <= 16; what lies past column n is read and ignored. It serves attention on a cache that stores keys and
// values in this layout, so it starts fast, runs on the calling goroutine and allocates nothing. The bits are those of
// [Packed.Mul]. It panics if a slice is too short.
func Panel(c []float32, ldc int, a []float32, lda, m, k int, panels []float32, n int, accumulate bool) {
	checkMatrix("a", len(a), m, k, lda)
	checkMatrix("c", len(c), m, n, ldc)
	checkMatrix("panels", len(panels), (n+PanelWidth-1)/PanelWidth*k, PanelWidth, PanelWidth)
	v := view{c: c, ldc: ldc, a: a, lda: lda, m: m, n: n, panels: panels, stride: k * PanelWidth, k: k, accumulate: accumulate}
	v.multiply()
}
