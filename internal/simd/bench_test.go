package simd

import (
	"fmt"
	"testing"
)

// reportGBs adds the rate of numBytes moved an iteration.
func reportGBs(b *testing.B, numBytes int) {
	b.ReportMetric(float64(numBytes)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GB/s")
}

// BenchmarkSumInto is the core of a reduction over eight ranks: in the second-level cache, and in memory.
func BenchmarkSumInto(b *testing.B) {
	const numRanks = 8
	for _, n := range []int{200, 1 << 12, 1 << 20} {
		b.Run(fmt.Sprintf("f32/n=%d", n), func(b *testing.B) {
			srcs, dst := make([][]float32, numRanks), make([]float32, n)
			for i := range srcs {
				srcs[i] = make([]float32, n)
			}
			for b.Loop() {
				SumInto(dst, srcs)
			}
			reportGBs(b, 4*n*(numRanks+1))
		})
		b.Run(fmt.Sprintf("bf16/n=%d", n), func(b *testing.B) {
			srcs, dst := make([][]uint16, numRanks), make([]uint16, n)
			for i := range srcs {
				srcs[i] = make([]uint16, n)
			}
			for b.Loop() {
				SumIntoBF16(dst, srcs)
			}
			reportGBs(b, 2*n*(numRanks+1))
		})
	}
}

// BenchmarkCopy is the bandwidth to hold BenchmarkSumInto against.
func BenchmarkCopy(b *testing.B) {
	for _, n := range []int{1 << 12, 1 << 20} {
		b.Run(fmt.Sprintf("n=%d", n), func(b *testing.B) {
			dst, src := make([]float32, 8*n), make([]float32, 8*n)
			for b.Loop() {
				copy(dst, src)
			}
			reportGBs(b, 4*16*n)
		})
	}
}

func BenchmarkOps(b *testing.B) {
	for _, n := range []int{20, 192, 4096} {
		var x [4][]float32
		for i := range x {
			x[i] = make([]float32, n)
		}
		for _, o := range ops {
			b.Run(fmt.Sprintf("%s/n=%d", o.name, n), func(b *testing.B) {
				for b.Loop() {
					o.run(x)
				}
				b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds()/1e9, "Gvalues/s")
			})
		}
	}
}
