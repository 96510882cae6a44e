package gemm

import "math/big"

// bigFMA rounds x*y + z once, with arithmetic wide enough to be exact.
func bigFMA(x, y, z float32) float32 {
	exact := func(v float32) *big.Float { return new(big.Float).SetPrec(1000).SetFloat64(float64(v)) }
	sum := new(big.Float).SetPrec(1000).Mul(exact(x), exact(y))
	f, _ := sum.Add(sum, exact(z)).Float32()
	return f
}
