package simd

import "unsafe"

func sumAllVec(dsts, srcs [][]float32, n int, stream bool) {
	d, s := unsafe.SliceData(dsts), unsafe.SliceData(srcs)
	switch {
	case current == AVX512 && stream:
		sumAllStreamAVX512(d, len(dsts), s, len(srcs), n)
	case current == AVX512:
		sumAllAVX512(d, len(dsts), s, len(srcs), n)
	case stream:
		sumAllStreamAVX2(d, len(dsts), s, len(srcs), n)
	default:
		sumAllAVX2(d, len(dsts), s, len(srcs), n)
	}
}

func sumAllBF16Vec(dsts, srcs [][]uint16, n int, stream bool) {
	d, s := unsafe.SliceData(dsts), unsafe.SliceData(srcs)
	switch {
	case current == AVX512 && stream:
		sumAllBF16StreamAVX512(d, len(dsts), s, len(srcs), n)
	case current == AVX512:
		sumAllBF16AVX512(d, len(dsts), s, len(srcs), n)
	case stream:
		sumAllBF16StreamAVX2(d, len(dsts), s, len(srcs), n)
	default:
		sumAllBF16AVX2(d, len(dsts), s, len(srcs), n)
	}
}

// sumAllBytesStep is the bytes that the kernel in use takes at once; the twin does the rest.
func sumAllBytesStep() int {
	if current == AVX512 {
		return 1 // it masks what is left
	}
	return 32
}
