package main

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weftgo/weft"
	"github.com/weftgo/weft/benchmarks/record"
	"github.com/weftgo/weft/comm"
)

// Rows of what a small call is made of. They tell what a cell could be at best.
const (
	lineOp = "line" // a cache line's way from one core to another
	callOp = "call" // an all_reduce of 8 bytes in a world of one rank, which waits for nobody
)

// Pieces are taken from the fastest of many short batches, since they are bounds.
const (
	numBatches = 200
	batchSize  = 200
)

// pieces measures both.
func pieces(ctx context.Context, round int) ([]record.Row, error) {
	rows := []record.Row{{Op: lineOp, Driver: "memory", Ranks: 2, Size: 64, Cycle: round, TimeUs: lineTime()}}
	w, err := weft.Open(ctx, weft.Config{Ranks: 1})
	if err != nil {
		return nil, err
	}
	defer w.Close(ctx)
	c, best := w.Local()[0], 0.0
	x, sum := comm.Of([]float32{1, 2}, 1), comm.Of(make([]float32, 2), 1)
	for range numBatches {
		start := time.Now()
		for range batchSize {
			if err := c.AllReduce(comm.Stream{}, sum, x, comm.Sum); err != nil {
				return nil, err
			}
		}
		best = least(best, start, batchSize)
	}
	return append(rows, record.Row{Op: callOp, Driver: "local", Ranks: 1, Size: 8, Cycle: round, TimeUs: best}), nil
}

// least returns the smaller of best and the microseconds of one of n since start; best is 0 before the first.
func least(best float64, start time.Time, n int) float64 {
	us := float64(time.Since(start).Nanoseconds()) / 1e3 / float64(n)
	if best == 0 {
		return us
	}
	return min(best, us)
}

// lineTime returns the microseconds that a cache line takes, half of a round trip; 0 on one CPU.
func lineTime() (best float64) {
	if runtime.GOMAXPROCS(0) < 2 {
		return 0
	}
	var there, back padded
	const n = numBatches * batchSize
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		for i := range int64(n) {
			there.wait(i + 1)
			back.Store(i + 1)
		}
	})
	start := time.Now()
	for i := range int64(n) {
		there.Store(i + 1)
		back.wait(i + 1)
		if (i+1)%batchSize == 0 {
			best = least(best, start, 2*batchSize)
			start = time.Now()
		}
	}
	return best
}

// padded is a number with cache lines of its own.
type padded struct {
	_ [128]byte
	atomic.Int64
	_ [128]byte
}

// wait looks until the number is v; now and then it gives way, since the other may need this core.
func (p *padded) wait(v int64) {
	for looks := 1; p.Load() != v; looks++ {
		if looks%10000 == 0 {
			runtime.Gosched()
		}
	}
}
