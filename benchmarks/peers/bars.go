package main

// A bar is how many times faster than the better peer weft must be, for sizes in [from, to].
type bar struct {
	from, to int64
	factor   map[string]float64
}

// bars hold where every rank has a CPU, overBars where ranks share CPUs (against Open MPI).
var (
	bars = []bar{
		{0, 512, map[string]float64{"all_reduce": 1.5, "reduce_scatterv": 1.5, "all_gatherv": 1.2, "alltoallv": 1.2}},
		{4 << 10, 4 << 10, map[string]float64{"all_reduce": 5, "reduce_scatterv": 5, "all_gatherv": 2.5, "alltoallv": 2.5}},
		{32 << 10, 256 << 10, map[string]float64{"all_reduce": 8, "reduce_scatterv": 8, "all_gatherv": 2.2, "alltoallv": 2}},
		{2 << 20, 2 << 20, map[string]float64{"all_reduce": 3.5, "reduce_scatterv": 4, "all_gatherv": 1.6, "alltoallv": 1.5}},
		{16 << 20, 1 << 50, map[string]float64{"all_reduce": 2.7, "reduce_scatterv": 3.2, "all_gatherv": 1.35, "alltoallv": 1.2}},
	}
	overFactors = map[string]float64{"all_reduce": 5, "reduce_scatterv": 5, "all_gatherv": 4, "alltoallv": 4}
	overBars    = []bar{{4 << 10, 4 << 10, overFactors}, {64 << 10, 64 << 10, overFactors}, {2 << 20, 2 << 20, overFactors}}
)

// barOf returns the bar of a cell; 0 where there is none.
func barOf(op string, size int64, over bool) float64 {
	table := bars
	if over {
		table = overBars
	}
	for _, b := range table {
		if b.from <= size && size <= b.to {
			return b.factor[op]
		}
	}
	return 0
}

// copyBar is the share of the copy rate that weft must reach from largeBytes on.
const (
	copyBar    = 0.85
	largeBytes = 16 << 20
)

// moved is the bytes that an operation must read and write over all ranks: each input once for every rank that needs it, each
// output once. size is as in the table: input of each rank, or of all_gather(v) the whole output.
func moved(op string, size int64, ranks int) float64 {
	s, p := float64(size), float64(ranks)
	switch op {
	case "all_reduce", "all_gather", "all_gatherv", "alltoall", "alltoallv":
		return 2 * p * s
	case "reduce_scatter", "reduce_scatterv":
		return (p + 1) * s
	}
	return 0
}
