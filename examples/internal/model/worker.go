package model

// worker is the scratch of one goroutine that takes pieces of a step. Its memory stays in that core's cache.
type worker struct {
	h   []float32 // [rowGrain, hidden] normed rows
	qkv []float32 // [rowGrain, qkvWidth] queries, keys and values of the rows

	scores []float32 // [rows of a unit, tileKeys]
	out    []float32 // [rows of a unit, width]
	most   []float32 // [rows of a unit] largest score so far
	sum    []float32 // [rows of a unit] of exp(score - most)
	shrink []float32 // [rows of a unit] what earlier sums and outputs are multiplied by
}

func (m *Model) newWorker() *worker {
	rows := 0
	for _, g := range m.groups {
		rows = max(rows, tilePositions(g.heads)*g.heads)
	}
	grain := min(rowGrain, m.cfg.MaxBatchedTokens)
	return &worker{
		h: make([]float32, grain*m.model.HiddenSize), qkv: make([]float32, grain*m.qkvWidth()),
		scores: make([]float32, rows*tileKeys), out: make([]float32, rows*m.geo.width),
		most: make([]float32, rows), sum: make([]float32, rows), shrink: make([]float32, rows),
	}
}

// getWorker takes a worker that is free, or makes one: there are as many as goroutines ever worked on the model at once.
func (m *Model) getWorker() *worker {
	select {
	case w := <-m.workers:
		return w
	default:
		return m.newWorker()
	}
}

func (m *Model) putWorker(w *worker) {
	select {
	case m.workers <- w:
	default:
	}
}
