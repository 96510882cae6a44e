package suite

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/internal/turnstile"
)

// Average says how the times of the ranks become one.
type Average int

// The averages, with nccl-tests' numbers.
const (
	Rank0 Average = iota
	Mean
	Min
	Max
)

// Timing says how a cell is timed.
type Timing struct {
	Warmup   int           // iterations before the clock starts
	Iters    int           // timed iterations; 0 means as many as fit into Budget
	Agg      int           // operations of one iteration; 0 means 1
	Average  Average       // over the ranks
	PerIter  bool          // a barrier before each iteration and a time of its own
	Blocking bool          // a barrier after each operation, inside its time
	Budget   time.Duration // for Iters = 0
	Graph    int           // on GPUs: launches of a CUDA graph that holds all iterations; 0 means no graph
	Settle   time.Duration // barriers before the warm-up for this long, in which the system finds each rank a core; 0 means none
	Bind     bool          // a CPU for each rank that keeps it, as launchers of processes give them one
	CPUTime  bool          // on GPUs: the time that the calls take the host, without the work that they enqueue
}

// Bounds of the iterations that a Budget gives.
const (
	MinIters = 3
	MaxIters = 2000
	MaxNodes = 100 // of a graph
)

// Times is what the clock showed.
type Times struct {
	Ranks []float64 // microseconds of one operation on each rank, the mean of its iterations
	Iters []float64 // with Timing.PerIter: microseconds of the slowest rank of each iteration, in order
	N     int       // iterations that were timed
}

// Reduce makes one time of those of the ranks.
func (t Times) Reduce(a Average) float64 {
	switch a {
	case Rank0:
		return t.Ranks[0]
	case Min:
		return slices.Min(t.Ranks)
	case Max:
		return slices.Max(t.Ranks)
	}
	return mean(t.Ranks)
}

// Spread is the statistics of iterations.
type Spread struct{ Min, Max, P50, P99, CV float64 }

// Spread summarises the iterations after the first skip: percentiles by nearest rank, the coefficient of variation in percent.
func (t Times) Spread(skip int) Spread {
	if skip >= len(t.Iters) {
		return Spread{}
	}
	sorted := slices.Sorted(slices.Values(t.Iters[skip:]))
	s := Spread{Min: sorted[0], Max: sorted[len(sorted)-1], P50: Percentile(sorted, 50), P99: Percentile(sorted, 99)}
	m, sum := mean(sorted), 0.0
	for _, v := range sorted {
		sum += (v - m) * (v - m)
	}
	if m > 0 {
		s.CV = 100 * math.Sqrt(sum/float64(len(sorted))) / m
	}
	return s
}

// Percentile returns the p-th percentile of sorted values by nearest rank; 0 of none.
func Percentile(sorted []float64, p float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	i := int(math.Ceil(p/100*float64(len(sorted)))) - 1
	return sorted[min(max(i, 0), len(sorted)-1)]
}

func mean(x []float64) float64 {
	sum := 0.0
	for _, v := range x {
		sum += v
	}
	return sum / float64(max(1, len(x)))
}

// stopwatch times the same loop on all ranks.
type stopwatch struct {
	Timing
	iters  atomic.Int64 // decided by rank 0 when Timing leaves it open
	calm   atomic.Bool  // set by rank 0 when Settle has passed
	totals []float64
	each   [][]float64 // [rank][iteration] microseconds
	all    *turnstile.Turnstile
}

func newStopwatch(ranks int, t Timing) *stopwatch {
	t.Agg = max(1, t.Agg)
	return &stopwatch{Timing: t, totals: make([]float64, ranks), each: make([][]float64, ranks), all: turnstile.New(ranks)}
}

// time is one rank's part: warm up, agree on the number of iterations, run them.
func (w *stopwatch) time(ctx context.Context, c *comm.Comm, d *device, op func() error) error {
	s := d.handle()
	if err := w.finished(ctx, c, d, w.loop(c, s, 1, op)); err != nil { // sets things up; the next ones tell how long one takes
		return err
	}
	if w.Bind {
		defer bind(c.Rank())()
	}
	if err := w.spread(c, s); err != nil {
		return err
	}
	start := time.Now()
	if err := w.finished(ctx, c, d, w.loop(c, s, max(1, w.Warmup), op)); err != nil {
		return err
	}
	if c.Rank() == 0 {
		w.iters.Store(int64(w.Choose(time.Since(start) / time.Duration(max(1, w.Warmup)))))
	}
	if err := w.finished(ctx, c, d, c.Barrier(s)); err != nil { // publishes the number, and starts all ranks at once
		return err
	}
	n := int(w.iters.Load())
	switch {
	case w.PerIter:
		return w.timeEach(ctx, c, s, n, op)
	case w.Graph > 0 && d != nil:
		return w.timeGraph(ctx, c, d, n, op)
	}
	start = time.Now()
	if err := w.loop(c, s, n, op); err != nil {
		return err
	}
	called := time.Since(start)
	if err := c.Wait(ctx, s); err != nil {
		return err
	}
	spent := time.Since(start)
	if w.CPUTime {
		spent = called
	}
	w.totals[c.Rank()] = micros(spent) / float64(n*w.Agg)
	return nil
}

// finished waits for what was enqueued, unless err says that it was not. On the CPU a call has ended when it returns.
func (w *stopwatch) finished(ctx context.Context, c *comm.Comm, d *device, err error) error {
	if err != nil || d == nil {
		return err
	}
	return c.Wait(ctx, d.handle())
}

// timeGraph times launches of a graph of n iterations.
func (w *stopwatch) timeGraph(ctx context.Context, c *comm.Comm, d *device, n int, op func() error) error {
	s := d.handle()
	if err := d.capture(func() error { return w.loop(c, s, n, op) }); err != nil {
		return err
	}
	if err := w.all.Wait(ctx); err != nil {
		return err
	}
	if err := w.finished(ctx, c, d, d.exec.Launch(d.stream)); err != nil { // the first one is slower
		return err
	}
	if err := w.finished(ctx, c, d, c.Barrier(s)); err != nil {
		return err
	}
	start := time.Now()
	for range w.Graph {
		if err := d.exec.Launch(d.stream); err != nil {
			return err
		}
	}
	if err := c.Wait(ctx, s); err != nil {
		return err
	}
	w.totals[c.Rank()] = micros(time.Since(start)) / float64(n*w.Agg*w.Graph)
	if err := w.all.Wait(ctx); err != nil { // freeing a graph may wait for kernels
		return err
	}
	return d.dropGraph()
}

// spread runs barriers until Settle has passed.
func (w *stopwatch) spread(c *comm.Comm, s comm.Stream) error {
	const between = 50 // barriers between two looks at the clock
	for start := time.Now(); w.Settle > 0 && !w.calm.Load(); {
		for range between {
			if err := c.Barrier(s); err != nil {
				return err
			}
		}
		if c.Rank() == 0 && time.Since(start) > w.Settle {
			w.calm.Store(true)
		}
		if err := c.Barrier(s); err != nil { // all see the same
			return err
		}
	}
	return nil
}

// timeEach times every iteration from a barrier on.
func (w *stopwatch) timeEach(ctx context.Context, c *comm.Comm, s comm.Stream, n int, op func() error) error {
	each := make([]float64, n)
	for i := range each {
		if err := c.Barrier(s); err != nil {
			return err
		}
		start := time.Now()
		if err := w.loop(c, s, 1, op); err != nil {
			return err
		}
		if err := c.Wait(ctx, s); err != nil {
			return err
		}
		each[i] = micros(time.Since(start)) / float64(w.Agg)
	}
	w.each[c.Rank()], w.totals[c.Rank()] = each, mean(each)
	return nil
}

func (w *stopwatch) loop(c *comm.Comm, s comm.Stream, n int, op func() error) error {
	for range n * w.Agg {
		if err := op(); err != nil {
			return err
		}
		if w.Blocking {
			if err := c.Barrier(s); err != nil {
				return err
			}
		}
	}
	return nil
}

// Choose turns the time of one iteration of the warm-up into a number of iterations.
func (t Timing) Choose(one time.Duration) int {
	if t.Iters > 0 {
		return t.Iters
	}
	most := time.Duration(MaxIters)
	if t.Graph > 0 {
		most = max(1, MaxNodes/time.Duration(max(1, t.Agg)))
	}
	return int(min(max(t.Budget/max(one, 1)/time.Duration(max(1, t.Graph)), MinIters), most))
}

func (w *stopwatch) times() Times {
	t := Times{Ranks: w.totals, N: int(w.iters.Load())}
	if !w.PerIter {
		return t
	}
	t.Iters = make([]float64, t.N)
	for _, each := range w.each {
		for i, v := range each {
			t.Iters[i] = max(t.Iters[i], v)
		}
	}
	return t
}

func micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }

// Validate reports a Timing that cannot be.
func (t Timing) Validate() error {
	if t.Iters < 0 || t.Warmup < 0 || t.Agg < 0 || t.Budget < 0 || t.Graph < 0 {
		return fmt.Errorf("iterations %d, warm-up %d, aggregation %d, budget %v and graph launches %d must not be negative",
			t.Iters, t.Warmup, t.Agg, t.Budget, t.Graph)
	}
	if t.Graph > 0 && (t.PerIter || t.CPUTime) {
		return fmt.Errorf("a graph is launched as a whole: neither its iterations nor the calls inside it have times of their own")
	}
	if t.Average < Rank0 || t.Average > Max {
		return fmt.Errorf("average %d is not one of 0 (rank 0), 1 (mean), 2 (min), 3 (max)", t.Average)
	}
	return nil
}
