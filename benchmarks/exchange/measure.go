package exchange

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/weftgo/weft"
	"github.com/weftgo/weft/benchmarks/suite"
	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/dtype"
	"github.com/weftgo/weft/ep"
)

// Result is one row of the table.
type Result struct {
	Op             string // "dispatch", "combine" or "moe_layer"
	Backend        string // the strategy that ran
	Iters          []float64
	P50Us, P99Us   float64
	LogicalGBs     float64 // bytes of all copies a rank sends, those to itself included, over P50
	WireGBs        float64 // of these, bytes that go to another rank
	CopiesPerToken float64 // ranks that a token was sent to
	MaxOverMean    float64 // (token, expert) pairs of the busiest rank over the mean
	Wrong          int64   // -1 when not checked
}

// Exchange measures dispatch and combine, without experts between them.
func Exchange(ctx context.Context, w *comm.World, s Setup, t suite.Timing, checks int) (dispatch, combine Result, err error) {
	if err := s.Validate(); err != nil {
		return dispatch, combine, err
	}
	m := &meter{problem: newProblem(s), watch: [2]*clock{newClock(w.Size()), newClock(w.Size())}, timing: t}
	if checks > 0 && s.exact() {
		m.checks = checks
	}
	if err := w.Run(ctx, m.rank); err != nil {
		return dispatch, combine, fmt.Errorf("%s: %w", s.Backend, err)
	}
	dispatch = m.result("dispatch", m.watch[0], m.wrong[0].Load())
	combine = m.result("combine", m.watch[1], m.wrong[1].Load())
	return dispatch, combine, nil
}

// meter is what the ranks of one measurement share.
type meter struct {
	*problem
	watch  [2]*clock // dispatch, combine
	timing suite.Timing
	checks int
	iters  atomic.Int64
	wrong  [2]atomic.Int64
	traffic
}

// tensors are one rank's arguments, on its device.
type tensors struct {
	mover
	in, out comm.Buffer // [tokens, hidden]
	route   ep.Routing
}

// tensors makes them.
func (m *meter) tensors(c *comm.Comm) (*tensors, error) {
	r := c.Rank()
	t := &tensors{mover: mover{c: c, lowLatency: m.LowLatency}}
	in, err := typed(m.rows(r), m.Hidden, m.Type)
	if err != nil {
		return nil, err
	}
	out, err := typed(make([]float32, m.Tokens[r]*m.Hidden), m.Hidden, m.Type)
	if err != nil {
		return nil, err
	}
	for _, x := range []struct {
		to   *comm.Buffer
		from comm.Buffer
	}{{&t.in, in}, {&t.out, out}, {&t.route.IDs, comm.Of(m.ids[r], m.TopK)}, {&t.route.Weights, comm.Of(m.weights[r], m.TopK)}} {
		if *x.to, err = t.up(x.from); err != nil {
			return nil, errors.Join(err, t.close())
		}
	}
	return t, nil
}

// rank is the part of one rank: warm up, time, check.
func (m *meter) rank(ctx context.Context, c *comm.Comm) (err error) {
	x, err := weft.NewExchanger(ctx, c, m.Backend, m.config())
	if err != nil {
		return err
	}
	defer x.Close(ctx)
	t, err := m.tensors(c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.close()) }()
	r := c.Rank()
	once := func(each func(phase int, run func() error) error) error {
		var got *ep.Received
		err := each(0, func() (err error) {
			got, err = x.Dispatch(comm.Stream{}, t.in, t.route)
			return err
		})
		if err != nil {
			return err
		}
		return each(1, func() error { return x.Combine(comm.Stream{}, t.out, got.Y, got) })
	}
	start := time.Now()
	for range max(1, m.timing.Warmup) {
		if err := once(func(_ int, run func() error) error { return run() }); err != nil {
			return err
		}
	}
	if err := c.Wait(ctx, comm.Stream{}); err != nil {
		return err
	}
	if r == 0 {
		m.iters.Store(int64(m.timing.Choose(time.Since(start) / time.Duration(max(1, m.timing.Warmup)))))
		m.name = x.Name()
	}
	if err := errors.Join(c.Barrier(comm.Stream{}), c.Wait(ctx, comm.Stream{})); err != nil {
		return err
	}
	before := stats(x)
	for range int(m.iters.Load()) {
		err := once(func(phase int, run func() error) error { return m.watch[phase].time(ctx, c, run) })
		if err != nil {
			return err
		}
	}
	m.add(before, stats(x))
	for range m.checks {
		if err := m.check(ctx, x, t); err != nil {
			return err
		}
	}
	return nil
}

// check runs once more and compares everything.
func (m *meter) check(ctx context.Context, x ep.Exchanger, t *tensors) error {
	got, err := x.Dispatch(comm.Stream{}, t.in, t.route)
	if err != nil {
		return err
	}
	if err := t.c.Wait(ctx, comm.Stream{}); err != nil {
		return err
	}
	seen, err := t.received(got)
	if err != nil {
		return err
	}
	r, everything := t.c.Rank(), x.Name() == "agrs"
	wrong := m.wrongRows(seen, r, everything)
	m.wrong[0].Add(wrong)
	if wrong == 0 { // else rows and index may not fit each other
		if err := m.experts(seen, r, everything); err != nil {
			return err
		}
		if err := comm.Copy(t.c, comm.Stream{}, got.Y.Slice(0, seen.Y.Rows()), seen.Y); err != nil {
			return err
		}
	}
	out := t.host(t.out)
	poison(out)
	if err := comm.Copy(t.c, comm.Stream{}, t.out, out); err != nil {
		return err
	}
	if err := x.Combine(comm.Stream{}, t.out, got.Y, got); err != nil {
		return err
	}
	if err := t.c.Wait(ctx, comm.Stream{}); err != nil {
		return err
	}
	if err := comm.Copy(t.c, comm.Stream{}, out, t.out); err != nil {
		return err
	}
	m.wrong[1].Add(m.wrongOut(out, r))
	return nil
}

// result puts the columns of one operation together.
func (m *meter) result(op string, c *clock, wrong int64) Result {
	r := m.columns(op, c, m.Setup)
	if r.Wrong = wrong; m.checks == 0 {
		r.Wrong = -1
	}
	return r
}

// typed is rows of whole numbers in the type of the exchange.
func typed(x []float32, cols int, t dtype.DType) (comm.Buffer, error) {
	switch t {
	case dtype.BF16:
		y := make([]dtype.BFloat16, len(x))
		return comm.Of(y, cols), dtype.FromFloat32s(dtype.Bytes(y), x, t)
	case dtype.F16:
		y := make([]dtype.Float16, len(x))
		return comm.Of(y, cols), dtype.FromFloat32s(dtype.Bytes(y), x, t)
	}
	return comm.Of(x, cols), nil
}

func poison(b comm.Buffer) {
	for i := range b.Rows() {
		row := b.RowBytes(i)
		for j := range row {
			row[j] = 0xff
		}
	}
}

func stats(x ep.Exchanger) ep.Stats {
	if m, ok := x.(ep.Meter); ok {
		return m.Stats()
	}
	return ep.Stats{}
}

// clock holds the time of every iteration on every rank.
type clock struct{ each [][]float64 }

func newClock(ranks int) *clock { return &clock{each: make([][]float64, ranks)} }

// time runs one operation from a barrier on.
func (k *clock) time(ctx context.Context, c *comm.Comm, run func() error) error {
	if err := c.Barrier(comm.Stream{}); err != nil {
		return err
	}
	if err := c.Wait(ctx, comm.Stream{}); err != nil { // on a GPU the barrier was only enqueued
		return err
	}
	start := time.Now()
	if err := run(); err != nil {
		return err
	}
	if err := c.Wait(ctx, comm.Stream{}); err != nil {
		return err
	}
	k.each[c.Rank()] = append(k.each[c.Rank()], float64(time.Since(start).Nanoseconds())/1e3)
	return nil
}

// slowest is the time of the slowest rank, iteration by iteration.
func (k *clock) slowest() []float64 {
	out := slices.Clone(k.each[0])
	for _, each := range k.each[1:] {
		for i, v := range each {
			out[i] = max(out[i], v)
		}
	}
	return out
}
