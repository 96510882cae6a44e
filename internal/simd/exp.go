package simd

import (
	"fmt"
	"math"
)

const signBit = 1 << 31

// exp(x) = 2^n * exp(r), n the integer nearest x/ln 2, r = x - n*ln 2 in [-0.347, 0.347].
const (
	expLog2e = 1.44269504
	expMagic = 12582912        // 1.5 * 2^23: adding it rounds to an integer, in the low bits
	expLn2Hi = 0.693359375     // ln 2 in two parts; n*expLn2Hi is exact
	expLn2Lo = -2.12194440e-4  // ln 2 - expLn2Hi
	expMin   = -87             // below, the result is 0; at -87 it is still normal
	expP0    = 1.9875691500e-4 // minimax polynomial of (exp(r) - 1 - r) / r^2
	expP1    = 1.3981999507e-3
	expP2    = 8.3334519073e-3
	expP3    = 4.1665795894e-2
	expP4    = 1.6666665459e-1
	expP5    = 5.0000001201e-1
)

// expMax is the largest x whose exponential is finite.
var expMax = math.Float32frombits(0x42b17217)

// exp32 is the definition that the assembly follows operation by operation.
func exp32(x float32) float32 {
	switch {
	case x != x:
		return x
	case x < expMin:
		return 0
	case x > expMax:
		return float32(math.Inf(1))
	}
	t := float32(x*expLog2e) + expMagic
	n := t - expMagic
	r := x - float32(n*expLn2Hi)
	r -= float32(n * expLn2Lo)
	p := float32(expP0*r) + expP1
	p = float32(p*r) + expP2
	p = float32(p*r) + expP3
	p = float32(p*r) + expP4
	p = float32(p*r) + expP5
	p = float32(p*float32(r*r)) + r
	p++
	return math.Float32frombits(math.Float32bits(p) + math.Float32bits(t)<<23)
}

// Exp writes the exponentials: dst[i] = exp(x[i]), within 1 ulp or so. Below -87 the result is 0, above 88.722832 it is +Inf,
// NaN stays NaN.
func Exp(dst, x []float32) { SoftmaxExp(dst, x, 0) }

// SoftmaxExp writes dst[i] = exp(x[i] - m) and returns their sum, in 16 partial sums folded as the package comment says.
// With m = Max(x) it is the first half of a softmax; scale by 1/sum for the second.
func SoftmaxExp(dst, x []float32, m float32) float32 {
	x = x[:len(dst)]
	if current == Go {
		return expSumGo(dst, x, m)
	}
	reading(x)
	writing(dst)
	return expSumVec(dst, x, m)
}

func expSumGo(dst, x []float32, m float32) float32 {
	var p [numPartial / 2]float32
	for i, v := range x {
		e := exp32(v - m)
		dst[i] = e
		p[i%len(p)] += e
	}
	return fold(p[:])
}

// SwiGLU writes dst[i] = silu(gate[i]) * up[i] with silu(g) = g / (1 + exp(-g)).
func SwiGLU(dst, gate, up []float32) {
	gate, up = gate[:len(dst)], up[:len(dst)]
	if current == Go {
		swiGLUGo(dst, gate, up)
		return
	}
	reading(gate, up)
	writing(dst)
	swiGLUVec(dst, gate, up)
}

func swiGLUGo(dst, gate, up []float32) {
	for i, g := range gate {
		dst[i] = float32(g/(1+exp32(-g))) * up[i]
	}
}

// SwiGLURows is [SwiGLU] in place on numRows rows of h that lie stride apart: width gates, replaced by the results, and then
// width ups. Columns from width on are undefined afterwards. stride must be at least 2*width and a multiple of 8.
func SwiGLURows(h []float32, numRows, stride, width int) {
	if width < 0 || stride < 2*width || stride%8 != 0 || numRows < 0 || numRows*stride > len(h) {
		panic(fmt.Sprintf("simd: %d rows of 2x%d values at a distance of %d in %d", numRows, width, stride, len(h)))
	}
	if current == Go {
		for i := range numRows {
			row := h[i*stride : (i+1)*stride]
			swiGLUGo(row[:width], row[:width], row[width:])
		}
		return
	}
	reading(h[:numRows*stride])
	writing(h[:numRows*stride])
	swiGLURowsVec(h, numRows, stride, width)
}
