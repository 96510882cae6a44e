package plan

import (
	"math"
	"slices"
)

// Skewed returns the shares of tokens per expert when the i-th hottest expert is chosen in proportion to 1/i^zipf. zipf 0 is
// even routing. The hot experts are spread over the ids by a fixed stride, so that neighbours are not all hot.
func Skewed(experts int, zipf float64) []float64 {
	shares := make([]float64, experts)
	var total float64
	for i := range shares {
		shares[i] = math.Pow(float64(i+1), -zipf)
		total += shares[i]
	}
	out := make([]float64, experts)
	stride := coprime(experts)
	for i, s := range shares {
		out[i*stride%experts] = s / total
	}
	return out
}

// coprime returns a stride near the golden section of n that visits every id.
func coprime(n int) int {
	for s := max(1, int(float64(n)*0.618)); ; s++ {
		a, b := n, s
		for b != 0 {
			a, b = b, a%b
		}
		if a == 1 {
			return s
		}
	}
}

// Imbalance returns max/mean of the ranks' loads when experts lie in id order on ranks.
func Imbalance(shares []float64, ranks int) float64 {
	loads := make([]float64, ranks)
	per := (len(shares) + ranks - 1) / ranks
	for e, s := range shares {
		loads[e/per] += s
	}
	return slices.Max(loads) * float64(ranks)
}

// Balanced returns max/mean after expert load balancing: redundant copies go one by one to the expert with the highest load
// per copy, and the copies are then packed, heaviest first, on the rank with the least load that has a free slot.
func Balanced(shares []float64, ranks, redundant int) float64 {
	copies := make([]int, len(shares))
	for e := range copies {
		copies[e] = 1
	}
	each := func(e int) float64 { return shares[e] / float64(copies[e]) }
	for range redundant {
		hot := 0
		for e := range shares {
			if each(e) > each(hot) {
				hot = e
			}
		}
		copies[hot]++
	}
	var weights []float64
	for e, n := range copies {
		for range n {
			weights = append(weights, each(e))
		}
	}
	slices.SortFunc(weights, func(a, b float64) int {
		if a > b {
			return -1
		}
		if a < b {
			return 1
		}
		return 0
	})
	slots := (len(weights) + ranks - 1) / ranks
	loads, used := make([]float64, ranks), make([]int, ranks)
	for _, w := range weights {
		best := -1
		for r := range loads {
			if used[r] < slots && (best < 0 || loads[r] < loads[best]) {
				best = r
			}
		}
		loads[best] += w
		used[best]++
	}
	return slices.Max(loads) * float64(ranks)
}
