package model

import "math"

// ---- naive kernels

func rmsNorm(dst, src, w []float32, eps float32) {
	var s float32
	for _, v := range src {
		s += v * v
	}
	r := 1 / float32(math.Sqrt(float64(s/float32(len(src))+eps)))
	for i, v := range src {
		dst[i] = v * r * w[i]
	}
}

func addTo(dst, src []float32) {
	for i := range dst {
		dst[i] += src[i]
	}
}

func expSum(x []float32, mx float32) float32 {
	var s float32
	for i := range x {
		x[i] = float32(math.Exp(float64(x[i] - mx)))
		s += x[i]
	}
	return s
}

func maxOf(x []float32) float32 {
	m := x[0]
	for _, v := range x {
		m = max(m, v)
	}
	return m
}

func scaleBy(x []float32, f float32) {
	for i := range x {
		x[i] *= f
	}
}

// rotate: halves
func rotate(dst, x, cos, sin []float32) {
	n := len(x) / 2
	for i := range n {
		a, b := x[i], x[i+n]
		dst[i] = a*cos[i] - b*sin[i]
		dst[i+n] = b*cos[i] + a*sin[i]
	}
}

func swiGLU(dst, g, u []float32) {
	for i := range dst {
		dst[i] = g[i] / (1 + float32(math.Exp(float64(-g[i])))) * u[i]
	}
}
func exp1(x float32) float32 { return float32(math.Exp(float64(x))) }
