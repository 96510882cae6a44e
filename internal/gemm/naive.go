package gemm

import "math"

// Naive is the definition that the kernels are tested against: C[m, n] (+)= A[m, k] · Bᵀ with the weight w [n, k], rows ldw apart,
// one chain of exactly rounded fused multiply-adds for each element. It is slow and independent of the kernels.
func Naive(c []float32, ldc int, a []float32, lda, m int, w []float32, n, k, ldw int, accumulate bool) {
	for i := range m {
		for j := range n {
			var acc float32
			if accumulate {
				acc = c[i*ldc+j]
			}
			for l := range k {
				acc = fma32(a[i*lda+l], w[j*ldw+l], acc)
			}
			c[i*ldc+j] = acc
		}
	}
}

// fma32 returns x*y + z rounded once to float32. The product is exact in float64. The sum is not, and rounding it to
// nearest twice could err, so it is first rounded to odd: then the second rounding sees all it needs to know.
func fma32(x, y, z float32) float32 {
	p := float64(x) * float64(y)
	c := float64(z)
	s := p + c
	if math.IsInf(s, 0) || math.IsNaN(s) {
		return float32(s)
	}
	t := s - p
	lost := (p - (s - t)) + (c - t) // exact error of the sum
	if bits := math.Float64bits(s); lost != 0 && bits&1 == 0 {
		if (lost > 0) == (s > 0) {
			bits++
		} else {
			bits--
		}
		s = math.Float64frombits(bits)
	}
	return float32(s)
}
