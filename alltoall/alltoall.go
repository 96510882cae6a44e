package alltoall

import (
	"context"
	"errors"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/ep"
	"github.com/weftgo/weft/internal/kernels/exchange"
)

// Exchange is one rank's end. It implements [ep.Exchanger], [ep.Meter] and, with Config.LowLatency, [ep.Splitter].
type Exchange struct {
	*exchange.Core
	engine engine
}

// engine is what differs between devices. On the CPU it runs at once, on a GPU it enqueues.
type engine interface {
	dispatch(s comm.Stream, x comm.Buffer, r ep.Routing) (*ep.Received, error)
	combine(s comm.Stream, out, y comm.Buffer, r *ep.Received, bias []comm.Buffer) error
	close(ctx context.Context) error
}

// New is collective. It returns an Invalid error on all ranks if a rank's cfg is wrong or differs from the others'.
func New(ctx context.Context, c *comm.Comm, cfg ep.Config) (*Exchange, error) {
	core, err := exchange.NewCore(ctx, c, "alltoall", cfg, func(ep.Config) error { return nil })
	if err != nil {
		return nil, err
	}
	x := &Exchange{Core: core}
	if core.Dev == nil && core.Cfg.LowLatency {
		x.engine = &lowHost{host: newHost(core)}
	} else if core.Dev == nil {
		x.engine = newHost(core)
	} else {
		g, err := newGPU(ctx, core)
		if err != nil {
			return nil, err
		}
		if x.engine = g; core.Cfg.LowLatency {
			x.engine = newLowGPU(g)
		}
	}
	return x, nil
}

// Dispatch sends each row once to each rank that owns one of its experts; see [ep.Exchanger].
func (x *Exchange) Dispatch(s comm.Stream, rows comm.Buffer, r ep.Routing) (*ep.Received, error) {
	return x.engine.dispatch(s, rows, r)
}

// Combine returns partial rows (RankInvariant: expert rows) to their source and sums them there; see [ep.Exchanger].
func (x *Exchange) Combine(s comm.Stream, out, y comm.Buffer, r *ep.Received, bias ...comm.Buffer) error {
	return x.engine.combine(s, out, y, r, bias)
}

// DispatchSend is the first half of a Dispatch; see [ep.Splitter]. Without Config.LowLatency the halves are Invalid errors.
func (x *Exchange) DispatchSend(s comm.Stream, rows comm.Buffer, r ep.Routing) (*ep.Received, error) {
	h, err := x.halves("DispatchSend")
	if err != nil {
		return nil, err
	}
	return h.dispatchSend(s, rows, r)
}

// DispatchRecv is the second half of a Dispatch; see [ep.Splitter].
func (x *Exchange) DispatchRecv(s comm.Stream, r *ep.Received) error {
	h, err := x.halves("DispatchRecv")
	if err != nil {
		return err
	}
	return h.dispatchRecv(s, r)
}

// CombineSend is the first half of a Combine; see [ep.Splitter].
func (x *Exchange) CombineSend(s comm.Stream, y comm.Buffer, r *ep.Received) error {
	h, err := x.halves("CombineSend")
	if err != nil {
		return err
	}
	return h.combineSend(s, y, r)
}

// CombineRecv is the second half of a Combine; see [ep.Splitter].
func (x *Exchange) CombineRecv(s comm.Stream, out comm.Buffer, r *ep.Received, bias ...comm.Buffer) error {
	h, err := x.halves("CombineRecv")
	if err != nil {
		return err
	}
	return h.combineRecv(s, out, r, bias)
}

func (x *Exchange) halves(call string) (splitter, error) {
	if h, ok := x.engine.(splitter); ok {
		return h, nil
	}
	return nil, x.Invalid("%s: calls in halves need Config.LowLatency", call)
}

// Close frees this rank's memory; see [ep.Exchanger]. On a GPU it first waits for this rank's own work.
func (x *Exchange) Close(ctx context.Context) error {
	if x.Closed() {
		return nil
	}
	return errors.Join(x.Core.Close(ctx), x.engine.close(ctx))
}

var _ ep.Splitter = (*Exchange)(nil)
