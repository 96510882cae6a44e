package eptest

import "github.com/weftgo/weft/ep"

// slot is one (received row, local expert) pair as the oracle sees it.
type slot struct {
	row, k int
	weight float32
}

// view is what one rank should receive.
type view struct {
	rows    [][2]int // (source rank, token) of each row of X in the layout Rows; of gaps -1
	numRows int      // without gaps
	slots   [][]slot // [local expert]
	experts []int    // [local expert]: its logical number
}

// home says where a choice goes, -1 for nowhere: written apart from package routing, by counting.
func home(cfg ep.Config, size, source, token, expert int) (rank, local int) {
	physical := cfg.Placement.Physical
	if physical == nil {
		physical = make([]int32, cfg.NumExperts)
		for e := range physical {
			physical[e] = int32(e)
		}
	}
	var replicas []int
	for p, e := range physical {
		if int(e) == expert {
			replicas = append(replicas, p)
		}
	}
	if len(replicas) == 0 {
		return -1, -1
	}
	want := replicas[(source+token)%len(replicas)]
	if cfg.Placement.RoundRobin {
		held := make([]int, size)
		for p := range want {
			held[p%size]++
		}
		return want % size, held[want%size]
	}
	p := 0
	for r := range size {
		n := len(physical) / size
		if r < len(physical)%size {
			n++
		}
		for i := range n {
			if p == want {
				return r, i
			}
			p++
		}
	}
	panic("no owner")
}

// numLocal counts the experts of a rank, and names them.
func localExperts(cfg ep.Config, size, rank int) []int {
	physical := cfg.Placement.Physical
	if physical == nil {
		for e := range cfg.NumExperts {
			physical = append(physical, int32(e))
		}
	}
	var mine []int
	first := 0
	for r := range size {
		n := len(physical) / size
		if r < len(physical)%size {
			n++
		}
		for i := range n {
			p := first + i
			if cfg.Placement.RoundRobin {
				p = i*size + r
			}
			if r == rank {
				mine = append(mine, int(physical[p]))
			}
		}
		first += n
	}
	return mine
}

// viewOf says what a rank should receive: every row (all), or those with an expert there.
func viewOf(cfg ep.Config, s Step, rank int, all bool) view {
	size := len(s.IDs)
	v := view{experts: localExperts(cfg, size, rank)}
	v.slots = make([][]slot, len(v.experts))
	for source := range size {
		if cfg.LowLatency { // each source's rows begin at a fixed one
			for len(v.rows) < source*cfg.MaxTokensPerRank {
				v.rows = append(v.rows, [2]int{-1, -1})
			}
		}
		for t := range len(s.IDs[source]) / cfg.TopK {
			row := len(v.rows)
			taken := all
			for k := range cfg.TopK {
				e := int(s.IDs[source][t*cfg.TopK+k])
				if e < 0 || e >= cfg.NumExperts {
					continue
				}
				if r, local := home(cfg, size, source, t, e); r == rank {
					taken = true
					v.slots[local] = append(v.slots[local], slot{row, k, s.Weight[source][t*cfg.TopK+k]})
				}
			}
			if taken {
				v.rows = append(v.rows, [2]int{source, t})
				v.numRows++
			}
		}
	}
	for cfg.LowLatency && len(v.rows) < size*cfg.MaxTokensPerRank {
		v.rows = append(v.rows, [2]int{-1, -1})
	}
	return v
}

// outOf computes a rank's output without any exchange, in float64: exact for the integers of NewStep.
func outOf(cfg ep.Config, s Step, rank, numBias int) []float64 {
	h := cfg.Hidden
	out := make([]float64, len(s.Tokens[rank]))
	for t := range len(out) / h {
		for k := range cfg.TopK {
			e := int(s.IDs[rank][t*cfg.TopK+k])
			if e < 0 || e >= cfg.NumExperts {
				continue
			}
			if r, _ := home(cfg, len(s.IDs), rank, t, e); r < 0 {
				continue // its other experts' weights stay as they are
			}
			for j := range h {
				out[t*h+j] += float64(s.Weight[rank][t*cfg.TopK+k]) * float64(expertOf(e, s.Tokens[rank][t*h+j]))
			}
		}
	}
	for range numBias {
		for i := range out {
			out[i] += float64(s.Bias[rank][i])
		}
	}
	return out
}

// copiesOf counts the (token, rank) pairs of a source rank.
func copiesOf(cfg ep.Config, s Step, source int) (copies, cross int) {
	size := len(s.IDs)
	for t := range len(s.IDs[source]) / cfg.TopK {
		to := map[int]bool{}
		for _, e := range s.IDs[source][t*cfg.TopK : (t+1)*cfg.TopK] {
			if e >= 0 && int(e) < cfg.NumExperts {
				if r, _ := home(cfg, size, source, t, int(e)); r >= 0 {
					to[r] = true
				}
			}
		}
		copies += len(to)
		if delete(to, source); true {
			cross += len(to)
		}
	}
	return copies, cross
}

// nodeCopiesOf counts the (token, node) pairs of a source rank, where nodes have so many ranks.
func nodeCopiesOf(cfg ep.Config, s Step, source, ranks int) (copies, cross int64) {
	for t := range len(s.IDs[source]) / cfg.TopK {
		to := map[int]bool{}
		for _, e := range s.IDs[source][t*cfg.TopK : (t+1)*cfg.TopK] {
			if e >= 0 && int(e) < cfg.NumExperts {
				if r, _ := home(cfg, len(s.IDs), source, t, int(e)); r >= 0 {
					to[r/ranks] = true
				}
			}
		}
		copies += int64(len(to))
		delete(to, source/ranks)
		cross += int64(len(to))
	}
	return copies, cross
}

// droppedOf counts the ids of a rank's tokens that go nowhere.
func droppedOf(cfg ep.Config, s Step, rank int) (n int64) {
	for i, e := range s.IDs[rank] {
		if e < 0 || int(e) >= cfg.NumExperts {
			n++
		} else if r, _ := home(cfg, len(s.IDs), rank, i/cfg.TopK, int(e)); r < 0 {
			n++
		}
	}
	return n
}
