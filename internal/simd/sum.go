package simd

// SumInto sums arrays in order, from +0: dst[i] = ((0 + srcs[0][i]) + srcs[1][i]) + ... It is the core of a reduction in rank order.
// dst may be one of the sources. Without sources dst becomes zero.
func SumInto(dst []float32, srcs [][]float32) {
	checkSources(len(dst), srcs)
	if current == Go {
		sumRanksGo(dst, srcs)
		return
	}
	reading(srcs...)
	writing(dst)
	sumRanksVec(dst, srcs)
}

func sumRanksGo(dst []float32, srcs [][]float32) {
	for i := range dst {
		var acc float32
		for _, s := range srcs {
			acc += s[i]
		}
		dst[i] = acc
	}
}

// SumIntoBF16 is [SumInto] for bfloat16 payloads: summed in float32 and rounded once, to nearest even.
func SumIntoBF16(dst []uint16, srcs [][]uint16) { sumHalves(dst, srcs, bf16) }

// SumIntoF16 is [SumInto] for float16 payloads: summed in float32 and rounded once, to nearest even.
func SumIntoF16(dst []uint16, srcs [][]uint16) { sumHalves(dst, srcs, f16) }

func sumHalves(dst []uint16, srcs [][]uint16, h half) {
	checkSources(len(dst), srcs)
	done := 0
	if current != Go {
		reading(srcs...)
		writing(dst)
		done = len(dst) / sumLanes * sumLanes
		sumHalvesVec(dst[:done], srcs, h)
	}
	for i := done; i < len(dst); i++ {
		var acc float32
		for _, s := range srcs {
			acc += h.widen(s[i])
		}
		dst[i] = h.narrow(acc)
	}
}

// checkSources panics on a source that is too short: the assembly would read past its end.
func checkSources[T any](n int, srcs [][]T) {
	for _, s := range srcs {
		_ = s[:n]
	}
}
