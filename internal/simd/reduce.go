package simd

import "math"

// numPartial is the number of partial sums of Dot and SumSquares, the same at all levels.
const numPartial = 32

// Dot returns the sum of a[i]*b[i], each product rounded, in the order that the package comment gives.
func Dot(a, b []float32) float32 {
	b = b[:len(a)]
	if current == Go {
		return dotGo(a, b)
	}
	reading(a, b)
	return dotVec(a, b)
}

func dotGo(a, b []float32) float32 {
	var p [numPartial]float32
	for i, v := range a {
		p[i%numPartial] += float32(v * b[i])
	}
	return fold(p[:])
}

// SumSquares returns the sum of a[i]*a[i], each product rounded, in the order that the package comment gives.
func SumSquares(a []float32) float32 {
	if current == Go {
		return dotGo(a, a)
	}
	reading(a)
	return sumSquaresVec(a)
}

// fold adds partial sums, a power of two of them, pairwise.
func fold(p []float32) float32 {
	for n := len(p) / 2; n > 0; n /= 2 {
		for j := range n {
			p[j] += p[j+n]
		}
	}
	return p[0]
}

// minVecMax is the shortest slice that the assembly of Max and MaxAbs takes.
const minVecMax = 8

// Max returns the largest value, NaN if any value is NaN, -Inf if there is none. Which zero it returns among +0 and -0 is
// not specified.
func Max(a []float32) float32 {
	if current == Go || len(a) < minVecMax {
		return maxGo(a)
	}
	reading(a)
	return maxVec(a)
}

func maxGo(a []float32) float32 {
	m := float32(math.Inf(-1))
	for _, v := range a {
		m = max(m, v) // the built-in keeps NaN
	}
	return m
}

// MaxAbs returns the largest absolute value, NaN if any value is NaN, 0 if there is none.
func MaxAbs(a []float32) float32 {
	if current == Go || len(a) < minVecMax {
		return maxAbsGo(a)
	}
	reading(a)
	return maxAbsVec(a)
}

func maxAbsGo(a []float32) float32 {
	var m uint32 // without signs, floats order as integers, NaN above all
	for _, v := range a {
		m = max(m, math.Float32bits(v)&^signBit)
	}
	return math.Float32frombits(m)
}
