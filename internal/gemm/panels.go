package gemm

// Panels is [Panel] over several panels at once: columns [16*i, 16*i+16) of C use the panel [k][16] that begins at panels[i*stride].
// n is the columns of C, any number; what lies past column n in the last panel is read and ignored. The bits are those of
// [Packed.Mul]. It runs on the calling goroutine, allocates nothing, and panics if a slice is too short.
func Panels(c []float32, ldc int, a []float32, lda, m, k int, panels []float32, stride, n int, accumulate bool) {
	if n < 0 || stride < 0 {
		checkMatrix("panels", len(panels), stride, n, n)
	}
	checkMatrix("a", len(a), m, k, lda)
	checkMatrix("c", len(c), m, n, ldc)
	if last := (n - 1) / PanelWidth; n > 0 && k > 0 {
		checkMatrix("panels", len(panels), 1, last*stride+k*PanelWidth, 0)
	}
	if m == 0 || n == 0 {
		return
	}
	v := view{c: c, ldc: ldc, a: a, lda: lda, m: m, n: n, panels: panels, stride: stride, k: k, accumulate: accumulate}
	v.multiply()
}
