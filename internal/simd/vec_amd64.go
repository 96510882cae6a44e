package simd

import (
	"math"
	"unsafe"
)

// Wrappers that pick the kernel of the level in use. Callers have checked the lengths. On AVX-512 the operations that
// are bound by memory or rare use the AVX2 kernels.

func addVec(dst, a []float32) {
	if current == AVX512 {
		addAVX512(unsafe.SliceData(dst), unsafe.SliceData(a), len(dst))
	} else {
		addAVX2(unsafe.SliceData(dst), unsafe.SliceData(a), len(dst))
	}
}

func mulVec(dst, a []float32) {
	if current == AVX512 {
		mulAVX512(unsafe.SliceData(dst), unsafe.SliceData(a), len(dst))
	} else {
		mulAVX2(unsafe.SliceData(dst), unsafe.SliceData(a), len(dst))
	}
}

func scaleVec(dst []float32, a float32) {
	if current == AVX512 {
		scaleAVX512(unsafe.SliceData(dst), len(dst), a)
	} else {
		scaleAVX2(unsafe.SliceData(dst), len(dst), a)
	}
}

func axpyVec(dst, x []float32, a float32) {
	if current == AVX512 {
		axpyAVX512(unsafe.SliceData(dst), unsafe.SliceData(x), len(dst), a)
	} else {
		axpyAVX2(unsafe.SliceData(dst), unsafe.SliceData(x), len(dst), a)
	}
}

func scaleMulVec(dst, x, w []float32, a float32) {
	if current == AVX512 {
		scaleMulAVX512(unsafe.SliceData(dst), unsafe.SliceData(x), unsafe.SliceData(w), len(dst), a)
	} else {
		scaleMulAVX2(unsafe.SliceData(dst), unsafe.SliceData(x), unsafe.SliceData(w), len(dst), a)
	}
}

func rotateVec(lo, hi, cos, sin []float32) {
	if current == AVX512 {
		rotateAVX512(unsafe.SliceData(lo), unsafe.SliceData(hi), unsafe.SliceData(cos), unsafe.SliceData(sin), len(lo))
	} else {
		rotateAVX2(unsafe.SliceData(lo), unsafe.SliceData(hi), unsafe.SliceData(cos), unsafe.SliceData(sin), len(lo))
	}
}

func dotVec(a, b []float32) float32 {
	if current == AVX512 {
		return dotAVX512(unsafe.SliceData(a), unsafe.SliceData(b), len(a))
	}
	return dotAVX2(unsafe.SliceData(a), unsafe.SliceData(b), len(a))
}

func sumSquaresVec(a []float32) float32 {
	if current == AVX512 {
		return sumSquaresAVX512(unsafe.SliceData(a), len(a))
	}
	return sumSquaresAVX2(unsafe.SliceData(a), len(a))
}

func addSumSquaresVec(dst, a []float32) float32 {
	if current == AVX512 {
		return addSumSquaresAVX512(unsafe.SliceData(dst), unsafe.SliceData(a), len(dst))
	}
	return addSumSquaresAVX2(unsafe.SliceData(dst), unsafe.SliceData(a), len(dst))
}

func expSumVec(dst, x []float32, m float32) float32 {
	if current == AVX512 {
		return expSumAVX512(unsafe.SliceData(dst), unsafe.SliceData(x), len(dst), m)
	}
	return expSumAVX2(unsafe.SliceData(dst), unsafe.SliceData(x), len(dst), m)
}

func swiGLUVec(dst, gate, up []float32) {
	if current == AVX512 {
		swiGLUAVX512(unsafe.SliceData(dst), unsafe.SliceData(gate), unsafe.SliceData(up), len(dst))
	} else {
		swiGLUAVX2(unsafe.SliceData(dst), unsafe.SliceData(gate), unsafe.SliceData(up), len(dst))
	}
}

func swiGLURowsVec(h []float32, numRows, stride, width int) {
	if current == AVX512 {
		swiGLURowsAVX512(unsafe.SliceData(h), numRows, stride, width)
	} else {
		swiGLURowsAVX2(unsafe.SliceData(h), numRows, stride, width)
	}
}

func weightedSumVec(dst, rows []float32, stride int, index []int32, weights []float32) {
	d, r, i, w := unsafe.SliceData(dst), unsafe.SliceData(rows), unsafe.SliceData(index), unsafe.SliceData(weights)
	if current == AVX512 {
		weightedSumAVX512(d, r, stride, i, w, len(index), len(dst))
	} else {
		weightedSumAVX2(d, r, stride, i, w, len(index), len(dst))
	}
}

func topKVec(ids []int32, x []float32) {
	topKAVX2(unsafe.SliceData(ids), unsafe.SliceData(x), len(x), len(ids))
}

func sumRanksVec(dst []float32, srcs [][]float32) {
	if current == AVX512 {
		sumRanksAVX512(unsafe.SliceData(dst), unsafe.SliceData(srcs), len(srcs), len(dst))
	} else {
		sumRanksAVX2(unsafe.SliceData(dst), unsafe.SliceData(srcs), len(srcs), len(dst))
	}
}

func maxVec(a []float32) float32 {
	m, isNaN := maxAVX2(unsafe.SliceData(a), len(a))
	if isNaN {
		return float32(math.NaN())
	}
	return m
}

func maxAbsVec(a []float32) float32 { return maxAbsAVX2(unsafe.SliceData(a), len(a)) }

func sumHalvesVec(dst []uint16, srcs [][]uint16, h half) {
	if h == bf16 {
		sumRanksBF16AVX2(unsafe.SliceData(dst), unsafe.SliceData(srcs), len(srcs), len(dst))
	} else {
		sumRanksF16AVX2(unsafe.SliceData(dst), unsafe.SliceData(srcs), len(srcs), len(dst))
	}
}

func widenVec(dst []float32, src []uint16, h half) {
	if h == bf16 {
		widenBF16AVX2(unsafe.SliceData(dst), unsafe.SliceData(src), len(dst))
	} else {
		widenF16AVX2(unsafe.SliceData(dst), unsafe.SliceData(src), len(dst))
	}
}

func narrowVec(dst []uint16, src []float32, h half) {
	if h == bf16 {
		narrowBF16AVX2(unsafe.SliceData(dst), unsafe.SliceData(src), len(dst))
	} else {
		narrowF16AVX2(unsafe.SliceData(dst), unsafe.SliceData(src), len(dst))
	}
}
