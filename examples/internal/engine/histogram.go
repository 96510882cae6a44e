package engine

import "slices"

// Histogram counts values by size, as Prometheus does.
type Histogram struct {
	Bounds []float64 // upper bounds of the classes, rising; not to be changed
	Counts []uint64  // [len(Bounds)+1] values in each class; the last has what is above all bounds
	Sum    float64   // of the values
}

func newHistogram(bounds []float64) Histogram {
	return Histogram{Bounds: bounds, Counts: make([]uint64, len(bounds)+1)}
}

func (h *Histogram) add(v float64) {
	i, _ := slices.BinarySearch(h.Bounds, v)
	h.Counts[i]++
	h.Sum += v
}

func (h Histogram) clone() Histogram {
	h.Counts = slices.Clone(h.Counts)
	return h
}

// Count returns how many values there were.
func (h Histogram) Count() (n uint64) {
	for _, c := range h.Counts {
		n += c
	}
	return n
}

// plus returns the sum of two histograms of the same bounds; one may be the zero value.
func (h Histogram) plus(g Histogram) Histogram {
	if h.Counts == nil {
		return g.clone()
	}
	h = h.clone()
	for i, n := range g.Counts {
		h.Counts[i] += n
	}
	h.Sum += g.Sum
	return h
}

var (
	stepTokenBounds = []float64{1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384}
	syncBounds      = []float64{1e-6, 2e-6, 5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 2e-2, 5e-2, 0.1, 0.2, 0.5, 1, 2, 5, 10, 60}
)
