package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/vbauerster/cupwriter"
	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"github.com/weftgo/weft"
	"github.com/weftgo/weft/benchmarks/record"
	"github.com/weftgo/weft/benchmarks/suite"
	"github.com/weftgo/weft/comm"
)

// measurement is one run of the command.
type measurement struct {
	*flags
	groups []group
	libs   []*library
	errOut io.Writer
	rows   []record.Row
	worlds map[int]*comm.World
}

// run measures everything. In each round, and for each group, weft and the peers take turns, in an order that moves by one
// from round to round, so that a change of the machine's mood hits all of them.
func (m *measurement) run(ctx context.Context, args []string) (record.Run, error) {
	h := record.Header{Tool: "peers", Weft: record.Version(), Args: args, Machine: record.ThisMachine(), Time: time.Now().UTC().Truncate(time.Second),
		Peers: map[string]string{}, Note: m.Note}
	m.worlds = map[int]*comm.World{}
	defer func() {
		for _, w := range m.worlds {
			w.Close(context.WithoutCancel(ctx))
		}
	}()
	bar, finish := progress(m.errOut, m.Rounds*len(m.groups))
	defer finish()
	err := m.rounds(ctx, bar)
	if err != nil && len(m.rows) == 0 {
		return record.Run{}, err
	}
	for _, lib := range m.libs {
		h.Peers[lib.name] = lib.version
	}
	h.Record = "header"
	return record.Run{Header: h, Rows: m.rows}, errors.Join(err, m.write(h))
}

// rounds measures until all rounds are done. If it is stopped, the rows of the rounds before remain.
func (m *measurement) rounds(ctx context.Context, bar *mpb.Bar) error {
	for round := range m.Rounds {
		before := len(m.rows)
		if err := m.round(ctx, bar, round); err != nil {
			m.rows = m.rows[:before]
			return fmt.Errorf("round %d of %d: %w", round+1, m.Rounds, err)
		}
	}
	return nil
}

func (m *measurement) round(ctx context.Context, bar *mpb.Bar, round int) error {
	m.rows = append(m.rows, record.Row{Op: copyOp, Driver: "memory", Type: "u8", Ranks: runtime.GOMAXPROCS(0), Size: copyBytes, Cycle: round,
		CopyGBs: copyRate()})
	rows, err := pieces(ctx, round)
	if err != nil {
		return err
	}
	m.rows = append(m.rows, rows...)
	for i, g := range m.groups {
		bar.Increment()
		if err := m.turn(ctx, g, round, round+i); err != nil {
			return err
		}
	}
	return nil
}

// progress shows a bar of groups if out is a terminal.
func progress(out io.Writer, groups int) (bar *mpb.Bar, finish func()) {
	if !cupwriter.New(out, false).IsTerminal() {
		out = io.Discard
	}
	p := mpb.New(mpb.WithOutput(out), mpb.WithWidth(48))
	bar = p.AddBar(int64(groups), mpb.BarRemoveOnComplete(), mpb.PrependDecorators(decor.CountersNoUnit("%d/%d groups")),
		mpb.AppendDecorators(decor.Elapsed(decor.ET_STYLE_GO)))
	return bar, func() {
		bar.Abort(true)
		p.Wait()
	}
}

// write writes all rows; versions of the peers are known only after they ran.
func (m *measurement) write(h record.Header) error {
	w, err := record.Create(m.Output, h)
	if err != nil {
		return err
	}
	for _, r := range m.rows {
		if err := w.Write(r); err != nil {
			return err
		}
	}
	return w.Close()
}

// settleTime is how long weft's ranks run before a cell is timed.
const settleTime = 10 * time.Millisecond

// turn runs one group through everybody, beginning with player number first.
func (m *measurement) turn(ctx context.Context, g group, round, first int) error {
	// MPI's ranks are old processes when a cell begins, weft's are new goroutines in each.
	t := suite.Timing{Warmup: 5, PerIter: true, Budget: m.Budget, Average: suite.Max, Settle: settleTime,
		Bind: !over(g.ranks)} // mpirun binds ranks to cores too, where there are enough
	players := len(m.libs) + 1
	for i := range players {
		p := (first + i) % players
		if p == len(m.libs) {
			if err := m.weft(ctx, g, t, round); err != nil {
				return err
			}
			continue
		}
		lib := m.libs[p]
		if lib.name == "mpich" && over(g.ranks) {
			continue // it spins while it waits: milliseconds for a barrier
		}
		cells, err := lib.run(ctx, g, t)
		if err != nil {
			return err
		}
		for i, c := range cells {
			m.add(g, g.sizes[i], lib.name, round, c)
		}
	}
	return nil
}

// weft runs a group in this process.
func (m *measurement) weft(ctx context.Context, g group, t suite.Timing, round int) error {
	w := m.worlds[g.ranks]
	if w == nil {
		var err error
		if w, err = weft.Open(ctx, weft.Config{Ranks: g.ranks}); err != nil {
			return err
		}
		m.worlds[g.ranks] = w
	}
	b, err := suite.New(w, suite.Setup{Op: g.op, Type: elements, Load: g.load, Seed: 1})
	if err != nil {
		return err
	}
	if _, err := b.Reserve(slices.Max(g.sizes)); err != nil {
		return err
	}
	for _, size := range g.sizes {
		res, err := b.Measure(ctx, size, !g.op.OutOfPlace, t, 1)
		if err != nil {
			return err
		}
		s := res.Times.Spread(0)
		m.add(g, size, "local", round, cellTime{op: g.op.Name, iters: res.Times.N, median: s.P50, least: s.Min, most: s.P99,
			wrong: max(0, res.Wrong)})
	}
	return nil
}

// add records one cell.
func (m *measurement) add(g group, size int64, driver string, round int, c cellTime) {
	shape := g.shape(size)
	r := record.Row{Op: g.op.Name, Size: size, Count: shape.Count, Type: elements.String(), Driver: driver, Ranks: g.ranks, TimeUs: c.median,
		Wrong: &c.wrong, Iters: c.iters, Cycle: round, Skew: g.load.Skew, InPlace: !g.op.OutOfPlace,
		PerIter: &record.PerIter{Min: c.least, P50: c.median, P99: c.most}}
	if g.op.Reduces {
		r.Redop = comm.Sum.String()
	}
	if c.median > 0 {
		r.AlgBW = float64(shape.Algorithm*elements.Size()) / c.median / 1e3
		r.BusBW = r.AlgBW * g.op.Factor(g.ranks)
	}
	m.rows = append(m.rows, r)
}

// copyOp is the row that tells how fast this machine copies memory.
const (
	copyOp    = "copy"
	copyBytes = 64 << 20
)

// copyRate is the bytes that one goroutine for each processor reads and writes in a second, in GB/s, when each copies
// memory far larger than the caches: the best of five.
func copyRate() float64 {
	n := runtime.GOMAXPROCS(0)
	var best time.Duration
	src, dst := make([]byte, n*copyBytes), make([]byte, n*copyBytes)
	for i := range src {
		src[i] = byte(i)
	}
	for i := range 6 {
		start := time.Now()
		var wg sync.WaitGroup
		for p := range n {
			wg.Go(func() { copy(dst[p*copyBytes:(p+1)*copyBytes], src[p*copyBytes:]) })
		}
		wg.Wait()
		if d := time.Since(start); i == 1 || i > 1 && d < best { // the first touches the pages
			best = d
		}
	}
	return float64(2*n*copyBytes) / best.Seconds() / 1e9
}
