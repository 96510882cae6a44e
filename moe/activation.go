package moe

import "math"

func swiglu(dst, gate, up []float32) {
	for i, g := range gate {
		dst[i] = g / (1 + float32(math.Exp(-float64(g)))) * up[i]
	}
}

func axpy(dst []float32, a float32, x []float32) {
	for i, v := range x {
		dst[i] += float32(a * v)
	}
}

func add(dst, x []float32) {
	for i, v := range x {
		dst[i] += v
	}
}
