package alltoall

import (
	"context"
	"errors"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/ep"
	"github.com/weftgo/weft/internal/kernels/exchange"
)

// Exchange is one rank's end. It implements [ep.Exchanger] and [ep.Meter].
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
	if core.Dev == nil {
		x.engine = newHost(core)
	} else if x.engine, err = newGPU(ctx, core); err != nil {
		return nil, err
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

// Close frees this rank's memory; see [ep.Exchanger]. On a GPU it first waits for this rank's own work.
func (x *Exchange) Close(ctx context.Context) error {
	if x.Closed() {
		return nil
	}
	return errors.Join(x.Core.Close(ctx), x.engine.close(ctx))
}
