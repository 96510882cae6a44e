package gemm

import (
	"fmt"
	"runtime"
	"testing"
)

// reportGFLOPS adds the rate of 2*m*n*k operations an iteration.
func reportGFLOPS(b *testing.B, m, n, k int) {
	b.ReportMetric(2*float64(m)*float64(n)*float64(k)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
}

func benchmarkMul(b *testing.B, m, n, k int) {
	p := Pack(make([]float32, n*k), n, k, k)
	a, c := make([]float32, m*k), make([]float32, m*n)
	for i := range a {
		a[i] = float32(i % 7)
	}
	b.ReportAllocs()
	for b.Loop() {
		p.Mul(c, n, a, k, m, false)
	}
	reportGFLOPS(b, m, n, k)
}

// BenchmarkSquare is the figure that benchmarks/gemm holds against OpenBLAS: one thread, 512 x 512 x 512.
func BenchmarkSquare(b *testing.B) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	benchmarkMul(b, 512, 512, 512)
}

// BenchmarkSkinny has the slices that tensor-parallel ranks of a small model see.
func BenchmarkSkinny(b *testing.B) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for _, s := range [][2]int{{10, 192}, {192, 20}, {80, 192}, {192, 160}, {192, 32}} {
		for _, m := range []int{1, 8, 64, 1000} {
			b.Run(fmt.Sprintf("k=%d/n=%d/m=%d", s[0], s[1], m), func(b *testing.B) { benchmarkMul(b, m, s[1], s[0]) })
		}
	}
}

// BenchmarkParallel is the square product over all cores.
func BenchmarkParallel(b *testing.B) { benchmarkMul(b, 512, 512, 512) }

// BenchmarkPanel has the products of attention: queries by a panel of 16 keys, and probabilities by a panel of values.
func BenchmarkPanel(b *testing.B) {
	for _, k := range []int{16, 24, 64} {
		for _, m := range []int{1, 8, 64} {
			b.Run(fmt.Sprintf("k=%d/m=%d", k, m), func(b *testing.B) {
				panel, a, c := make([]float32, k*PanelWidth), make([]float32, m*k), make([]float32, m*PanelWidth)
				b.ReportAllocs()
				for b.Loop() {
					Panel(c, PanelWidth, a, k, m, k, panel, PanelWidth, false)
				}
				reportGFLOPS(b, m, PanelWidth, k)
			})
		}
	}
}
