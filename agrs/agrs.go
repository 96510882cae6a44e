package agrs

import (
	"context"
	"fmt"

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
}

// New is collective. It returns an Invalid error on all ranks if a rank's cfg is wrong or differs from the others', and
// refuses what gathering everything cannot do: RankInvariant, and a MaxRecvRows below ranks x MaxTokensPerRank.
func New(ctx context.Context, c *comm.Comm, cfg ep.Config) (*Exchange, error) {
	core, err := exchange.NewCore(ctx, c, "agrs", cfg, refuse)
	if err != nil {
		return nil, err
	}
	x := &Exchange{Core: core}
	if core.Dev == nil {
		x.engine, err = newHost(core)
	} else {
		x.engine, err = newGPU(core)
	}
	if err != nil {
		return nil, err
	}
	return x, nil
}

func refuse(cfg ep.Config) error {
	if cfg.LowLatency {
		return fmt.Errorf("agrs gathers all rows and has no places to push them to; LowLatency needs alltoall")
	}
	if cfg.RankInvariant {
		return fmt.Errorf("agrs sums partial rows per rank, so its bits depend on the number of ranks; RankInvariant needs alltoall")
	}
	if worst := cfg.Placement.Size * cfg.MaxTokensPerRank; cfg.MaxRecvRows < worst {
		return fmt.Errorf("agrs gives every rank all rows, up to %d ranks x %d tokens = %d > MaxRecvRows %d; leave MaxRecvRows 0 or use alltoall",
			cfg.Placement.Size, cfg.MaxTokensPerRank, worst, cfg.MaxRecvRows)
	}
	return nil
}

// Dispatch gathers the rows of all ranks, their ids and weights; see [ep.Exchanger].
func (x *Exchange) Dispatch(s comm.Stream, rows comm.Buffer, r ep.Routing) (*ep.Received, error) {
	return x.engine.dispatch(s, rows, r)
}

// Combine makes this rank's partial rows of all tokens and scatters their sums; see [ep.Exchanger].
func (x *Exchange) Combine(s comm.Stream, out, y comm.Buffer, r *ep.Received, bias ...comm.Buffer) error {
	return x.engine.combine(s, out, y, r, bias)
}
