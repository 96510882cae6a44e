package alltoall

import (
	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/dtype"
	"github.com/weftgo/weft/ep"
	"github.com/weftgo/weft/internal/kernels"
	"github.com/weftgo/weft/internal/kernels/exchange"
)

// lowGPU is the engine of a GPU with LowLatency: one kernel for a call or for each of its halves. Ranks push to fixed places and
// wait once; see internal/kernels/lowlatency.cuh.
type lowGPU struct {
	*gpu
	send *kernels.LowDispatchArgs
	back *kernels.LowCombineArgs
}

func newLowGPU(g *gpu) *lowGPU {
	return &lowGPU{gpu: g, send: new(kernels.LowDispatchArgs), back: new(kernels.LowCombineArgs)}
}

// lowPlaces is the layout of what LowLatency has in the region.
type lowPlaces struct{ banks []kernels.Low }

func (p *lowPlaces) take(l *layout, cfg ep.Config, size int) {
	width := min(size, cfg.TopK)
	if cfg.RankInvariant {
		width = cfg.TopK
	}
	elem, tokens, rows := cfg.DType.Size(), cfg.MaxTokensPerRank, cfg.MaxRecvRows
	parts, step := kernels.LowPieces(cfg.Hidden, elem)
	stride := (cfg.Hidden*elem + 15) / 16 * 16
	lines := kernels.LowHeadLines(cfg.Placement.NumLocal(0))
	words := uint64(l.take(1, kernels.LowWordBytes(cfg.Banks)))
	const row = kernels.MaxRanks * 8
	for b := range cfg.Banks {
		p.banks = append(p.banks, kernels.Low{Passed: words, Ready: words + row, Refused: words + 2*row, Bank: uint32(b),
			Came: uint64(l.take(1, row)), Heads: uint64(l.take(size*lines, kernels.LineBytes)),
			Notes: uint64(l.take(rows*(1+cfg.TopK), kernels.LineBytes)), Landed: uint64(l.take(rows, 8)),
			Back: uint64(l.take(tokens*width, stride)), Pieces: uint64(l.take(tokens*width*parts, 8)),
			HeadLines: uint32(lines), Width: uint32(width), Parts: uint32(parts), BackStride: uint32(stride), Step: uint32(step),
			Banks: uint32(cfg.Banks)})
	}
}

// newPlaces takes the private memory, and gives each bank its places.
func (g *gpu) newPlaces(need *exchange.Need) {
	state := exchange.Addr(need.Buffer(dtype.I64, 1, kernels.LowStateBytes(g.Cfg.Banks)/8))
	for i, b := range g.banks {
		b.low = g.places.banks[i]
		b.low.State = state
		rows := g.Cfg.MaxTokensPerRank * int(b.low.Width)
		b.Poisoned(g.region.At(g.Comm.Rank(), int(b.low.Back), dtype.U8, rows, int(b.low.BackStride)))
		b.slot = g.region.At(g.Comm.Rank(), int(b.bank.Slot), dtype.I32, g.Cfg.MaxRecvRows, g.Cfg.TopK)
		b.Poisoned(b.slot)
	}
}

func (g *lowGPU) dispatch(s comm.Stream, rows comm.Buffer, r ep.Routing) (*ep.Received, error) {
	batch, cause := g.Check(rows, r)
	if cause != nil && g.Closed() {
		return nil, cause
	}
	free, err := g.Free() // a refused call takes part too: ranks that have a bank must hear of it
	if cause == nil {
		cause = err
	}
	phases := uint32(kernels.LowSend | kernels.LowRecv)
	if cause != nil {
		phases = kernels.LowSend
	}
	number := g.NextNumber()
	err = g.launch(s, free, number, phases, batch, r, cause)
	if cause != nil {
		return nil, cause
	}
	if err != nil {
		return nil, err
	}
	return g.Take(g.Banks()[free], &g.banks[free].GPUBank, s, batch.NumRows), nil
}

func (g *lowGPU) dispatchSend(s comm.Stream, rows comm.Buffer, r ep.Routing) (*ep.Received, error) {
	batch, cause := g.Check(rows, r)
	if cause != nil && g.Closed() {
		return nil, cause
	}
	free, err := g.Free()
	if err != nil {
		return nil, err
	}
	number := g.NextNumber()
	if err := g.launch(s, free, number, kernels.LowSend, batch, r, cause); err != nil {
		return nil, err
	}
	g.banks[free].cause = cause
	return g.Hold(g.Banks()[free], batch, number), nil
}

func (g *lowGPU) dispatchRecv(s comm.Stream, r *ep.Received) error {
	held, number, err := g.Held(r)
	if err != nil {
		return err
	}
	b := g.banks[held]
	if err = b.cause; err == nil {
		err = g.launch(s, held, number, kernels.LowRecv, exchange.Batch{}, ep.Routing{}, nil)
	}
	if err != nil {
		r.Release()
		return err
	}
	g.TakeHeld(r, &b.GPUBank, s)
	return nil
}

// launch enqueues a dispatch, or a half. A call that is wrong on this rank (cause) takes part all the same, and refuses.
func (g *lowGPU) launch(s comm.Stream, bank int, number uint64, phases uint32, batch exchange.Batch, r ep.Routing, cause error) error {
	a, b := g.send, g.banks[bank]
	a.Low = b.low
	a.Low.Phases = phases
	if phases == kernels.LowRecv {
		batch.X, r.IDs, r.Weights = b.Got.X, b.Got.Index.Row, b.Got.Index.Weight // none is read
	}
	g.arguments(&a.DispatchArgs, b, batch, r, cause != nil)
	m := &a.Meet
	m.Kind = kernels.Split
	m.Entry.Signature = g.base[0] ^ number*0x9e3779b97f4a7c15 ^ uint64(bank)<<48
	var poisoned *exchange.GPUBank
	if cause == nil && phases&kernels.LowSend != 0 { // what only this rank writes, or others after its head
		poisoned = &b.GPUBank
	}
	seat, err := g.Dev.Seat(s, m, kernels.Note{Label: "dispatch", Shape: g.shape, Tag: number}, poisoned)
	if err != nil {
		return err
	}
	blocks := seat.Blocks
	if phases != kernels.LowRecv {
		blocks = min(blocks, max(1, batch.NumRows))
	}
	return g.Dev.Failed("dispatch", seat.Set.LowDispatch(seat.Stream, a, blocks))
}

func (g *lowGPU) combine(s comm.Stream, out, y comm.Buffer, r *ep.Received, bias []comm.Buffer) error {
	t, err := g.CheckCombine(out, y, r, bias)
	if err != nil {
		return err
	}
	err = g.bring(s, t, kernels.LowSend|kernels.LowRecv)
	t.Release()
	return err
}

func (g *lowGPU) combineSend(s comm.Stream, y comm.Buffer, r *ep.Received) error {
	t, err := g.CheckCombineSend(y, r)
	if err != nil {
		return err
	}
	if err = g.bring(s, t, kernels.LowSend); err != nil {
		t.Release()
		return err
	}
	t.Sent()
	return nil
}

func (g *lowGPU) combineRecv(s comm.Stream, out comm.Buffer, r *ep.Received, bias []comm.Buffer) error {
	t, err := g.CheckCombineRecv(out, r, bias)
	if err != nil {
		return err
	}
	err = g.bring(s, t, kernels.LowRecv)
	t.Release()
	return err
}

// bring enqueues a combine, or a half.
func (g *lowGPU) bring(s comm.Stream, t exchange.Taken, phases uint32) error {
	a, b := g.back, g.banks[t.Number]
	g.target(&a.CombineArgs, b, t)
	a.Exchange, a.Low = g.exchange, b.low
	a.Low.Phases = phases
	a.Y, a.YStride = 0, 0
	if !t.Y.IsZero() {
		a.Y, a.YStride = exchange.Addr(t.Y), exchange.Stride(t.Y)
	}
	a.Slot, a.Weight, a.NumRows = exchange.Addr(b.slot), exchange.Addr(b.Got.Index.Weight), b.bank.NumRows
	m := &a.Meet
	m.Kind = kernels.Split
	m.Entry.Signature = g.base[1] ^ t.Tag*0x9e3779b97f4a7c15
	var poisoned *exchange.GPUBank
	if phases&kernels.LowSend != 0 { // peers write it when this rank's combine has told them that its experts are done
		poisoned = &b.pushed
	}
	seat, err := g.Dev.Seat(s, m, kernels.Note{Label: "combine", Shape: g.shape, Tag: t.Tag}, poisoned)
	if err != nil {
		return err
	}
	return g.Dev.Failed("combine", seat.Set.LowCombine(seat.Stream, a, seat.Blocks))
}
