package simd

import "math"

// RMSNorm scales one row to unit mean square and by the weights w:
//
//	dst[i] = (x[i] * r) * w[i],  r = 1 / sqrt(SumSquares(x)/len(x) + eps)
//
// r is computed in float64 from the float32 sum of squares and rounded once.
func RMSNorm(dst, x, w []float32, eps float32) {
	x, w = x[:len(dst)], w[:len(dst)]
	if len(dst) > 0 {
		scaleRMS(dst, x, w, SumSquares(x), eps)
	}
}

// AddRMSNorm adds a row to the residual stream and norms the sum, in one pass over memory: x[i] += y[i], then [RMSNorm] of
// x into dst, which may be y. The bits are those of [Add] and RMSNorm.
func AddRMSNorm(dst, x, y, w []float32, eps float32) {
	x, y, w = x[:len(dst)], y[:len(dst)], w[:len(dst)]
	if len(dst) > 0 {
		scaleRMS(dst, x, w, AddSumSquares(x, y), eps)
	}
}

// AddSumSquares is [Add] that returns the [SumSquares] of the new dst.
func AddSumSquares(dst, a []float32) float32 {
	a = a[:len(dst)]
	if current == Go {
		addGo(dst, a)
		return dotGo(dst, dst)
	}
	reading(dst, a)
	writing(dst)
	return addSumSquaresVec(dst, a)
}

// scaleRMS is the second half of RMSNorm, from the sum of squares of x.
func scaleRMS(dst, x, w []float32, sum, eps float32) {
	mean := float64(sum) / float64(len(x))
	r := float32(1 / math.Sqrt(mean+float64(eps)))
	if current == Go {
		scaleMulGo(dst, x, w, r)
		return
	}
	reading(x, w)
	writing(dst)
	scaleMulVec(dst, x, w, r)
}

func scaleMulGo(dst, x, w []float32, a float32) {
	for i, v := range x {
		dst[i] = float32(v*a) * w[i]
	}
}
