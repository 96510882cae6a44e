package moe

import (
	"math"

	"github.com/weftgo/weft/internal/simd"
)

// maxGroups bounds NumGroups: the chosen groups are bits of one word.
const maxGroups = 64

// pickRange goes on with a top-k that has n entries already, over ids [lo, hi) of choice, and returns the new n. best[i] is
// the choice value of ids[i]; ids must come in ascending order over the calls.
func pickRange(ids []int32, best, choice []float32, n, lo, hi int) int {
	k := len(ids)
	best = best[:k]
	for e := lo; e < hi; e++ {
		v := choice[e]
		if v != v {
			v = float32(math.Inf(-1))
		}
		if n == k {
			if !(v > best[k-1]) {
				continue
			}
		} else {
			n++
		}
		i := n - 1
		for i > 0 && v > best[i-1] {
			best[i], ids[i] = best[i-1], ids[i-1]
			i--
		}
		best[i], ids[i] = v, int32(e)
	}
	return n
}

// topKGroups is [simd.TopK] among the experts of the best numChosen of numGroups groups. A group's score is the sum of its two best
// (method NoAuxTC) or its best (GroupLimitedGreedy); of equal groups the lower comes first.
func topKGroups(ids []int32, best, choice []float32, numGroups, numChosen int, method TopKMethod) {
	var scores [maxGroups]float32
	var groups [maxGroups]int32
	size := len(choice) / numGroups
	for g := range numGroups {
		scores[g] = groupScore(choice[g*size:(g+1)*size], method)
	}
	simd.TopK(groups[:numChosen], scores[:numGroups])
	var chosen uint64
	for _, g := range groups[:numChosen] {
		chosen |= 1 << g
	}
	n := 0
	for g := range numGroups {
		if chosen>>g&1 == 1 {
			n = pickRange(ids, best, choice, n, g*size, (g+1)*size)
		}
	}
}

func groupScore(choice []float32, method TopKMethod) float32 {
	first, second := float32(math.Inf(-1)), float32(math.Inf(-1))
	for _, v := range choice {
		if v > first {
			first, second = v, first
		} else if v > second {
			second = v
		}
	}
	if method == GroupLimitedGreedy || len(choice) == 1 {
		return first
	}
	return first + second
}
