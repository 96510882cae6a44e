package simd

import "unsafe"

func sumAllVec(dsts, srcs [][]float32, n int, stream bool) {
	d, s := unsafe.SliceData(dsts), unsafe.SliceData(srcs)
	if stream {
		sumAllStreamAVX2(d, len(dsts), s, len(srcs), n)
	} else {
		sumAllAVX2(d, len(dsts), s, len(srcs), n)
	}
}

func sumAllBF16Vec(dsts, srcs [][]uint16, n int, stream bool) {
	d, s := unsafe.SliceData(dsts), unsafe.SliceData(srcs)
	if stream {
		sumAllBF16StreamAVX2(d, len(dsts), s, len(srcs), n)
	} else {
		sumAllBF16AVX2(d, len(dsts), s, len(srcs), n)
	}
}
