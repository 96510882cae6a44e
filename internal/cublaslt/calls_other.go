//go:build !(linux && cgo)

package cublaslt

import "github.com/weftgo/weft/internal/dl"

// Symbols returns nothing: without cgo, or not on Linux, no library is opened.
func Symbols() []dl.Symbol { return nil }

type plan struct{}

type shape struct {
	m, n, k, lda, ldb, ldd, strideA, strideB, strideD int64
	workspace                                         uint64
	in, out, batch, transB, alignment                 int32
}

const notInitialized = 1

func bind([]uintptr)                                                {}
func bindContext(uintptr)                                           {}
func version() int                                                  { return 0 }
func statusText(int) string                                         { return "" }
func createHandle(uintptr, *uintptr) int32                          { return notInitialized }
func destroyHandle(_, _ uintptr) int32                              { return notInitialized }
func createPlan(_, _ uintptr, _ *shape) (*plan, int32)              { return nil, notInitialized }
func firstRefused(_, _ uintptr, _ *plan, _ uint64, from, _ int) int { return from }
func destroyPlan(*plan)                                             {}
func matmul(_, _ uintptr, _ *plan, _ int64, _, _, _ uintptr, _, _ float32, _ uintptr, _ uint64, _ uintptr) int32 {
	return notInitialized
}
