package main

import (
	"cmp"
	"slices"

	"github.com/weftgo/weft/benchmarks/record"
)

// cell is one line of the table: medians over rounds of each player, and how weft compares.
type cell struct {
	op       string
	ranks    int
	size     int64
	times    map[string]float64 // player -> microseconds
	peer     string             // the better one
	ratio    float64            // that peer's time / weft's, the median of the ratios within rounds
	worst    float64            // the worst round
	bar      float64
	ofCopy   float64 // share of the copy rate; 0 below largeBytes
	numWrong int64
}

// summarize makes the table of recorded rows, in the order of the record.
func summarize(run record.Run) []cell {
	type key struct {
		op    string
		ranks int
		size  int64
	}
	rounds := map[key]map[string]map[int]float64{} // cell -> player -> round -> time
	wrong := map[key]int64{}
	var order []key
	var copies []float64
	for _, r := range run.Rows {
		if r.Op == copyOp {
			copies = append(copies, r.CopyGBs)
			continue
		}
		if r.Op == lineOp || r.Op == callOp {
			continue
		}
		k := key{r.Op, r.Ranks, r.Size}
		if rounds[k] == nil {
			rounds[k] = map[string]map[int]float64{}
			order = append(order, k)
		}
		if rounds[k][r.Driver] == nil {
			rounds[k][r.Driver] = map[int]float64{}
		}
		rounds[k][r.Driver][r.Cycle] = r.TimeUs
		if r.Wrong != nil {
			wrong[k] += *r.Wrong
		}
	}
	slices.SortStableFunc(order, func(a, b key) int { return cmp.Compare(a.ranks, b.ranks) })
	var cells []cell
	for _, k := range order {
		c := cell{op: k.op, ranks: k.ranks, size: k.size, numWrong: wrong[k],
			bar: barOf(k.op, k.size, k.ranks > run.Header.Machine.NumCPU)}
		c.compare(rounds[k])
		if rate := median(copies); k.size >= largeBytes && rate > 0 && c.times["local"] > 0 {
			c.ofCopy = moved(k.op, k.size, k.ranks) / c.times["local"] / 1e3 / rate
		}
		cells = append(cells, c)
	}
	return cells
}

// compare finds the better peer and the ratio to it, round by round.
func (c *cell) compare(rounds map[string]map[int]float64) {
	c.times = map[string]float64{}
	for player, times := range rounds {
		var all []float64
		for _, t := range times {
			all = append(all, t)
		}
		c.times[player] = median(all)
		if player != "local" && (c.peer == "" || c.times[player] < c.times[c.peer]) {
			c.peer = player
		}
	}
	var ratios []float64
	for round, ours := range rounds["local"] {
		if theirs := rounds[c.peer][round]; theirs > 0 && ours > 0 {
			ratios = append(ratios, theirs/ours)
		}
	}
	if len(ratios) > 0 {
		c.ratio, c.worst = median(ratios), slices.Min(ratios)
	}
}

// verdict says in a word how the cell stands.
func (c cell) verdict() string {
	switch {
	case c.numWrong > 0:
		return "WRONG"
	case c.ratio == 0:
		return "no peer"
	case c.ratio < 1:
		return "loses"
	case c.bar > 0 && c.ratio < c.bar:
		return "below bar"
	case c.bar > 0:
		return "meets bar"
	}
	return "wins"
}

// median of values; 0 of none.
func median(x []float64) float64 {
	if len(x) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(x))
	if n := len(s); n%2 == 0 {
		return (s[n/2-1] + s[n/2]) / 2
	}
	return s[len(s)/2]
}
