package simd

import (
	"unsafe"

	"github.com/weftgo/weft/internal/race"
)

//go:generate go -C ../tools run ./asm -kind sums -out ../simd/sums_amd64.s -stubs ../simd/sums_amd64.go -pkg simd

// streamAlign is the alignment in bytes that stores past the caches need at either width.
const streamAlign = 64

// SumAll is [SumInto] with several equal results: every dsts[k][i] becomes the sum, which is taken once. Dsts and srcs have one
// length; a dst may be one of the srcs. If stream is set and the processor can, results go to memory past the caches, which pays
// for arrays that do not fit them.
func SumAll(dsts, srcs [][]float32, stream bool) {
	n := checkAll(dsts, srcs)
	if n == 0 {
		return
	}
	done := 0
	if current != Go && len(srcs) > 0 {
		done = whole(4*n) / 4
		reading(srcs...)
		for _, d := range dsts {
			writing(d)
		}
		sumAllVec(dsts, srcs, done, stream && streamable(dsts))
	}
	for i := done; i < n; i++ {
		var acc float32
		for _, s := range srcs {
			acc += s[i]
		}
		for _, d := range dsts {
			d[i] = acc
		}
	}
}

// SumAllBF16 is [SumAll] for bfloat16 payloads: summed in float32 and rounded once, to nearest even.
func SumAllBF16(dsts, srcs [][]uint16, stream bool) {
	n := checkAll(dsts, srcs)
	if n == 0 {
		return
	}
	done := 0
	if current != Go && len(srcs) > 0 {
		done = whole(2*n) / 2
		reading(srcs...)
		for _, d := range dsts {
			writing(d)
		}
		sumAllBF16Vec(dsts, srcs, done, stream && streamable(dsts))
	}
	for i := done; i < n; i++ {
		var acc float32
		for _, s := range srcs {
			acc += bf16.widen(s[i])
		}
		v := bf16.narrow(acc)
		for _, d := range dsts {
			d[i] = v
		}
	}
}

// SumAllBytes is [SumAll], or with halves [SumAllBF16], for arrays that are given as bytes. They begin where an element may.
func SumAllBytes(dsts, srcs [][]byte, halves, stream bool) {
	size := checkAll(dsts, srcs)
	if size == 0 {
		return
	}
	done := 0
	if current != Go && len(srcs) > 0 {
		if done = whole(size); done > 0 {
			reportBytes(dsts, srcs, done)
			stream = stream && streamable(dsts)
			if halves {
				sumAllBF16Vec(arrays[uint16](dsts), arrays[uint16](srcs), done/2, stream)
			} else {
				sumAllVec(arrays[float32](dsts), arrays[float32](srcs), done/4, stream)
			}
		}
	}
	if halves {
		for i := done; i < size; i += 2 {
			var acc float32
			for _, s := range srcs {
				acc += bf16.widen(*(*uint16)(unsafe.Pointer(&s[i])))
			}
			v := bf16.narrow(acc)
			for _, d := range dsts {
				*(*uint16)(unsafe.Pointer(&d[i])) = v
			}
		}
		return
	}
	for i := done; i < size; i += 4 {
		var acc float32
		for _, s := range srcs {
			acc += *(*float32)(unsafe.Pointer(&s[i]))
		}
		for _, d := range dsts {
			*(*float32)(unsafe.Pointer(&d[i])) = acc
		}
	}
}

// whole is what a kernel does of size bytes.
func whole(size int) int {
	step := sumAllBytesStep()
	return size / step * step
}

// arrays gives byte arrays another type. Their lengths are then wrong: the assembly is told the number of elements.
func arrays[T float32 | uint16](x [][]byte) [][]T { return *(*[][]T)(unsafe.Pointer(&x)) }

// reportBytes tells the race detector what the assembly reads and writes.
func reportBytes(dsts, srcs [][]byte, n int) {
	if !race.Enabled {
		return
	}
	for _, s := range srcs {
		race.ReadRange(unsafe.Pointer(unsafe.SliceData(s)), n)
	}
	for _, d := range dsts {
		race.WriteRange(unsafe.Pointer(unsafe.SliceData(d)), n)
	}
}

// checkAll returns the common length; it panics on a source or result that is shorter than the first result.
func checkAll[T any](dsts, srcs [][]T) int {
	if len(dsts) == 0 {
		return 0
	}
	n := len(dsts[0])
	checkSources(n, srcs)
	checkSources(n, dsts)
	return n
}

func streamable[T any](dsts [][]T) bool {
	for _, d := range dsts {
		if uintptr(unsafe.Pointer(unsafe.SliceData(d)))%streamAlign != 0 {
			return false
		}
	}
	return true
}
