package moe

import "sync/atomic"

// load counts the (token, choice) pairs of each expert of this rank.
type load struct {
	count  []atomic.Int64 // [numExperts]
	expert []int32        // [numLocal]: the expert that a local one is
}

func (l *load) init(cfg Config, rank int) {
	l.count = make([]atomic.Int64, cfg.NumExperts)
	l.expert = make([]int32, cfg.NumLocalExperts(rank))
	for i := range l.expert {
		l.expert[i] = int32(cfg.LocalExpert(rank, i))
	}
}

func (l *load) add(counts []int32) {
	for i, n := range counts {
		if n != 0 {
			l.count[l.expert[i]].Add(int64(n))
		}
	}
}

// Load returns a copy of how many (token, choice) pairs each expert has computed on this rank since New [numExperts]; 0 for
// experts of other ranks. With EP the sum over the ranks is the load of the whole layer; where every rank has a slice of
// every expert, each rank has that already. Any goroutine may call it.
func (l *Layer) Load() []int64 {
	n := make([]int64, len(l.load.count))
	for i := range n {
		n[i] = l.load.count[i].Load()
	}
	return n
}
