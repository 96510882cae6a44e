package simd

import "fmt"

// WeightedSum sums rows of a matrix: dst[i] = the sum over j of weights[j] * rows[index[j]*stride + i], in order of j from +0, each
// product rounded. A negative index is no row; its weight is not read. index and weights are equally long, and the rows have
// len(dst) values at a distance of stride. dst must not overlap rows.
func WeightedSum(dst, rows []float32, stride int, index []int32, weights []float32) {
	weights = weights[:len(index)]
	for _, r := range index {
		if r >= 0 && (stride < 0 || int(r)*stride+len(dst) > len(rows)) {
			panic(fmt.Sprintf("simd: row %d of %d values at a distance of %d in a matrix of %d", r, len(dst), stride, len(rows)))
		}
	}
	if current == Go {
		weightedSumGo(dst, rows, stride, index, weights)
		return
	}
	for _, r := range index {
		if r >= 0 {
			reading(rows[int(r)*stride:][:len(dst)])
		}
	}
	reading(weights)
	reading(index)
	writing(dst)
	weightedSumVec(dst, rows, stride, index, weights)
}

func weightedSumGo(dst, rows []float32, stride int, index []int32, weights []float32) {
	clear(dst)
	for j, r := range index {
		if r >= 0 {
			axpyGo(dst, rows[int(r)*stride:][:len(dst)], weights[j])
		}
	}
}
