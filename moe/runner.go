package moe

import (
	"fmt"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/ep"
	"github.com/weftgo/weft/routing"
	"github.com/weftgo/weft/trace"
)

// A runner routes the rank's rows, runs the shared experts and knows where the one reduction is. Its three flows are the
// three cases of the package comment.
type runner struct {
	router *router
	shared *ffn           // this rank's part; nil for none
	table  *routing.Table // who has which expert; nil when every rank has a slice of each
	lane   *trace.Lane
	watch  func(ids []int32, weights []float32) // see Layer.SetObserver
	parts  [3]comm.Part

	// Of the last Forward.
	ids     []int32
	weights []float32
}

func newRunner(cfg Config, c *comm.Comm, choice choice, w Weights) (r runner, err error) {
	r.router = newRouter(cfg, w)
	if choice.shared != noShared {
		lo, hi := cfg.SharedSlice(c.Rank())
		e, err := w.Shared()
		if err == nil {
			r.shared = new(ffn)
			*r.shared, err = packFFN(e, hi-lo, cfg.Hidden)
		}
		if err != nil {
			return r, fmt.Errorf("moe: rank %d, shared experts (columns [%d, %d) of %d): %w", c.Rank(), lo, hi, cfg.SharedIntermediate, err)
		}
	}
	if choice.whole {
		if r.table, err = routing.NewTable(cfg.placement()); err != nil {
			return r, fmt.Errorf("moe: %w", err)
		}
	}
	return r, nil
}

// route fills ids and weights for the rows of x.
func (r *runner) route(cfg *Config, x rows) {
	span := r.lane.Begin(trace.Compute, "router")
	ws := cfg.Workspace
	r.ids, r.weights = grow(&ws.ids, x.n*cfg.TopK), grow(&ws.weights, x.n*cfg.TopK)
	r.router.route(ws, r.ids, r.weights, x.data, x.n)
	span.End()
	if r.watch != nil {
		r.watch(r.ids, r.weights)
	}
}

// allRows is the case dp = 1: every rank has all rows. One all_reduce.
func (r *runner) allRows(s comm.Stream, l *Layer, out, x rows) error {
	cfg, ws := &l.cfg, l.cfg.Workspace
	r.route(cfg, x)
	span := r.lane.Begin(trace.Compute, "experts")
	locals := r.ids // with slices every expert is local
	if r.table != nil {
		locals = grow(&ws.locals, len(r.ids))
		r.table.Locals(locals, r.ids, cfg.TopK, 0, l.comm.Rank())
	}
	ws.index.Build(locals, r.weights, cfg.TopK, l.kernel.numLocal, 1)
	index := ofRouting(&ws.index, l.kernel.numLocal)
	l.load.add(index.counts)
	l.kernel.experts.partial(out.data, x.data, x.n, index, r.shared)
	span.End()
	return l.comm.AllReduce(s, out.buf, out.buf, comm.Sum)
}

// exchange is the case dp > 1 with ep: the exchanger brings the rows of all ranks that chose an expert of this rank.
func (r *runner) exchange(s comm.Stream, l *Layer, out, x rows) error {
	cfg, k := &l.cfg, &l.kernel
	r.route(cfg, x)
	span := r.lane.Begin(trace.Compute, "dispatch")
	got, err := k.exchanger.Dispatch(s, x.buf, ep.Routing{IDs: comm.Of(r.ids, cfg.TopK), Weights: comm.Of(r.weights, cfg.TopK)})
	span.End()
	if err != nil {
		return err
	}
	span = r.lane.Begin(trace.Compute, "experts")
	err = k.received(cfg, &l.load, got)
	span.End()
	if err != nil {
		got.Release()
		return err
	}
	if r.shared == nil {
		span = r.lane.Begin(trace.Compute, "combine")
		defer span.End()
		return k.exchanger.Combine(s, out.buf, got.Y, got)
	}
	span = r.lane.Begin(trace.Compute, "shared experts")
	bias := r.sharedRows(cfg, x)
	span.End()
	span = r.lane.Begin(trace.Compute, "combine")
	defer span.End()
	return k.exchanger.Combine(s, out.buf, got.Y, got, bias)
}

// gather is the case dp > 1 without ep: one all_gatherv of rows, weights and ids, one reduce_scatterv back.
func (r *runner) gather(s comm.Stream, l *Layer, out, x rows) error {
	cfg, g := &l.cfg, &l.cfg.Workspace.gathered
	r.route(cfg, x)
	span := r.lane.Begin(trace.Compute, "dispatch")
	total, err := r.gatherRows(s, l, g, x)
	span.End()
	if err != nil {
		return err
	}
	span = r.lane.Begin(trace.Compute, "experts")
	index := &cfg.Workspace.index
	index.Build(g.ids[:total*cfg.TopK], g.weights[:total*cfg.TopK], cfg.TopK, cfg.NumExperts, 1)
	i := ofRouting(index, cfg.NumExperts)
	l.load.add(i.counts)
	l.kernel.experts.partial(g.partial, g.x, total, i, r.shared)
	span.End()
	span = r.lane.Begin(trace.Compute, "combine")
	defer span.End()
	size := l.comm.Size()
	counts := comm.OnDevice(comm.Of(g.own[:1], 1), comm.Of(g.all[:size], size), cfg.MaxTokens)
	r.parts[0] = comm.Part{Dst: out.buf, Src: comm.Of(g.partial[:total*cfg.Hidden], cfg.Hidden)}
	return l.comm.ReduceScatterV(s, counts, comm.Sum, r.parts[:1]...)
}

// gatherRows fills g with the rows of all ranks and returns how many there are.
func (r *runner) gatherRows(s comm.Stream, l *Layer, g *gathered, x rows) (total int, err error) {
	cfg, size := &l.cfg, l.comm.Size()
	most := size * cfg.MaxTokens
	gx, gp := grow(&g.x, most*cfg.Hidden), grow(&g.partial, most*cfg.Hidden)
	gi, gw := grow(&g.ids, most*cfg.TopK), grow(&g.weights, most*cfg.TopK)
	g.x, g.partial, g.ids, g.weights = gx, gp, gi, gw
	g.own, g.all = grow(&g.own, 1), grow(&g.all, size)
	g.own[0] = int32(x.n)
	counts := comm.OnDevice(comm.Of(g.own, 1), comm.Of(g.all, size), cfg.MaxTokens)
	r.parts = [3]comm.Part{
		{Dst: comm.Of(gx, cfg.Hidden), Src: x.buf},
		{Dst: comm.Of(gw, cfg.TopK), Src: comm.Of(r.weights, cfg.TopK)},
		{Dst: comm.Of(gi, cfg.TopK), Src: comm.Of(r.ids, cfg.TopK)},
	}
	if err := l.comm.AllGatherV(s, counts, r.parts[:]...); err != nil {
		return 0, err
	}
	for _, n := range g.all {
		total += int(n)
	}
	return total, nil
}

// sharedRows computes the shared experts on this rank's own rows.
func (r *runner) sharedRows(cfg *Config, x rows) comm.Buffer {
	ws := cfg.Workspace
	y := grow(&ws.shared, x.n*cfg.Hidden)
	r.shared.block(y, x.data, x.n, grow(&ws.sharedH, x.n*r.shared.stride))
	return comm.Of(y, cfg.Hidden)
}

// received runs the local experts on what a dispatch brought.
func (k *kernel) received(cfg *Config, load *load, got *ep.Received) error {
	index, err := ofExchange(got.Index, k.numLocal)
	if err != nil {
		return err
	}
	load.add(index.counts)
	x, err := receivedRows(&cfg.Workspace.wide, got)
	if err != nil {
		return err
	}
	y, err := comm.View[float32](got.Y)
	if err != nil {
		return err
	}
	if k.expertRows {
		k.experts.slots(y, x.data, x.n, index)
	} else {
		k.experts.partial(y, x.data, x.n, index, nil)
	}
	return nil
}
