package simd

import (
	"fmt"
	"math"
)

// topKBlock is the most values that the assembly of TopK takes.
const topKBlock = 64

// TopK writes the indices of the len(ids) largest of x, largest first; of equals the lower index comes first. NaN ranks as
// -Inf, so a row of NaN chooses the lowest indices. It panics if x has fewer values than ids.
func TopK(ids []int32, x []float32) {
	if len(ids) > len(x) {
		panic(fmt.Sprintf("simd: top %d of %d values", len(ids), len(x)))
	}
	switch {
	case len(ids) == 0:
	case current == Go:
		topKGo(ids, x)
	case len(x) <= topKBlock:
		reading(x)
		writing(ids)
		topKVec(ids, x)
	default:
		reading(x)
		writing(ids)
		topKBlocks(ids, x)
	}
}

// rank is the value that TopK orders by.
func rank(v float32) float32 {
	if v != v {
		return float32(math.Inf(-1))
	}
	return v
}

// topKGo finds one after the other: the largest of those that come after the one before.
func topKGo(ids []int32, x []float32) {
	last, lastID := float32(math.Inf(1)), -1
	for i := range ids {
		id, best := -1, float32(0)
		for e, v := range x {
			v = rank(v)
			if (v < last || v == last && e > lastID) && (id < 0 || v > best) {
				id, best = e, v
			}
		}
		ids[i], last, lastID = int32(id), best, id
	}
}

// topKBlocks merges the best of each block into ids, which are ordered by value and index as each block's are.
func topKBlocks(ids []int32, x []float32) {
	var best [topKBlock]int32
	n := 0 // ids so far
	for lo := 0; lo < len(x); lo += topKBlock {
		block := x[lo:min(lo+topKBlock, len(x))]
		found := best[:min(len(ids), len(block))]
		topKVec(found, block)
		for _, id := range found {
			v := rank(block[id])
			if n == len(ids) {
				if v <= rank(x[ids[n-1]]) {
					break // and so are the others
				}
				n--
			}
			i := n
			for ; i > 0 && v > rank(x[ids[i-1]]); i-- {
				ids[i] = ids[i-1]
			}
			ids[i] = int32(lo) + id
			n++
		}
	}
}
