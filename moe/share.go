package moe

// Share returns the part [lo, hi) of n that rank has when size ranks split it: contiguous and in rank order. Where n does
// not divide, the first n mod size ranks have one more; ranks may have none.
func Share(n, size, rank int) (lo, hi int) {
	q, more := n/size, n%size
	lo = rank*q + min(rank, more)
	hi = lo + q
	if rank < more {
		hi++
	}
	return lo, hi
}
