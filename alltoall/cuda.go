package alltoall

import (
	"context"
	"fmt"
	"hash/fnv"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/dtype"
	"github.com/weftgo/weft/ep"
	"github.com/weftgo/weft/internal/envknob"
	"github.com/weftgo/weft/internal/kernels"
	"github.com/weftgo/weft/internal/kernels/exchange"
	"github.com/weftgo/weft/symm"
)

// pull says whether Combine reads expert rows where they are, or partial rows that their ranks make first. The bits are the
// same. Pulling moves fewer bytes where all ranks share a GPU, partial rows fewer between GPUs.
var pull = envknob.Register("WEFT_COMBINE_PULL", "1: alltoall's combine pulls expert rows; 0: ranks sum them first", "0", "1")

// gpu is the engine of a GPU. What peers write lies in one symmetric region: rows and index of every bank, and the lines
// that carry counts.
type gpu struct {
	*exchange.Core
	region   *symm.Region
	places   lowPlaces // with LowLatency
	exchange kernels.Exchange
	banks    []*gpuBank
	presum   bool
	base     [2]uint64 // of the signatures of dispatch and combine
	flags    uint32
	rowBytes int
	shape    string

	scaleBytes int // of a row

	// Parameters of launches, allocated once: the driver reads them by address.
	send    *kernels.DispatchArgs
	back    *kernels.CombineArgs
	partial *kernels.PartialArgs
}

type gpuBank struct {
	exchange.GPUBank
	bank    kernels.Bank
	slot    comm.Buffer // int32 [MaxRecvRows, topK], for partial rows made here
	partial comm.Buffer // DType [MaxRecvRows, hidden]

	pushed exchange.GPUBank // names what peers may write before this rank's Dispatch, with LowLatency
	low    kernels.Low
	cause  error // why DispatchSend was refused
}

// align is the alignment of everything in the region.
const align = 256

// layout hands out offsets in the region.
type layout int

func (l *layout) take(rows, rowBytes int) int {
	at := int(*l)
	*l += layout((rows*rowBytes + align - 1) / align * align)
	return at
}

func newGPU(ctx context.Context, core *exchange.Core) (*gpu, error) {
	cfg, c := core.Cfg, core.Comm
	g := &gpu{Core: core, send: new(kernels.DispatchArgs), back: new(kernels.CombineArgs), partial: new(kernels.PartialArgs),
		rowBytes: cfg.WireCols * cfg.Wire.Size(), shape: fmt.Sprintf("%v[%d] of %d ranks", cfg.DType, cfg.Hidden, c.Size())}
	g.presum = cfg.Output == ep.ExpertRows && !cfg.RankInvariant && !core.Dev.Seater.SameGPU()
	if v, err := pull.Get(); err == nil && v != "" && !cfg.LowLatency && cfg.Output == ep.ExpertRows && !cfg.RankInvariant {
		g.presum = v == "0"
	}
	g.presum = g.presum && !cfg.LowLatency
	for i, what := range []string{"dispatch", "combine"} {
		h := fnv.New64a()
		fmt.Fprintf(h, "alltoall %s %+v", what, cfg)
		g.base[i] = h.Sum64()
	}
	g.setFlags()
	scale, scales := cfg.Scales()
	g.scaleBytes = scales * scale.Size()
	size, physical, blocks := c.Size(), cfg.Placement.NumPhysical(), core.Dev.Seater.Blocks()
	var l layout
	tally := l.take(1, kernels.TallyBytes(size, physical))
	var offsets [][8]int
	rows := cfg.MaxRecvRows
	if cfg.Layout == ep.Expanded {
		rows = int(cfg.MaxSlots())
	}
	for range cfg.Banks {
		slots := int(cfg.MaxSlots())
		o := [8]int{l.take(rows, g.rowBytes), l.take(rows, g.scaleBytes), l.take(slots, 4), l.take(slots, 4), l.take(slots, 4), 0,
			l.take(core.Dev.OutputRows(), cfg.Hidden*cfg.DType.Size()), 0}
		if cfg.LowLatency {
			o[5] = l.take(cfg.MaxRecvRows, 4*cfg.TopK)
		}
		if g.presum {
			o[5], o[7] = l.take(cfg.MaxRecvRows, 4*cfg.TopK), l.take(cfg.MaxRecvRows, cfg.Hidden*cfg.DType.Size())
		}
		offsets = append(offsets, o)
	}
	if cfg.LowLatency {
		g.places.take(&l, cfg, size)
	}
	var err error
	if g.region, err = symm.Alloc(ctx, c, int(l)); err != nil {
		return nil, err
	}
	need := exchange.Need{Dev: core.Dev}
	fan := min(size, cfg.TopK)
	scratch := need.Buffer(dtype.I32, 1, kernels.ScratchBytes(size, physical, cfg.MaxTokensPerRank, blocks)/4)
	g.exchange = kernels.Exchange{Experts: core.Dev.Experts, Tally: uint64(tally), Scratch: exchange.Addr(scratch), Stats: exchange.Addr(core.Dev.Stats),
		Hidden: uint32(cfg.Hidden), MaxTokens: uint32(cfg.MaxTokensPerRank), MaxRecv: uint32(cfg.MaxRecvRows), Fan: uint32(fan)}
	for r := range size {
		g.exchange.Peers[r] = uint64(g.region.Addr(r))
	}
	for _, o := range offsets {
		g.banks = append(g.banks, g.newBank(&need, o, rows))
	}
	if cfg.LowLatency {
		g.newPlaces(&need)
	}
	return g, need.Err
}

func (g *gpu) setFlags() {
	cfg := g.Cfg
	set := func(on bool, flag uint32) {
		if on {
			g.flags |= flag
		}
	}
	set(cfg.Layout == ep.Expanded, kernels.Expanded|kernels.Terms)
	set(cfg.Output == ep.ExpertRows && !g.presum && (!cfg.LowLatency || cfg.RankInvariant), kernels.Terms)
	set(cfg.RankInvariant, kernels.Invariant)
	set(cfg.Overflow == ep.Drop && cfg.MaxRecvRows < g.Comm.Size()*cfg.MaxTokensPerRank, kernels.Clip)
	set(g.presum, kernels.Inverse)
}

// newBank takes a bank's memory; offsets are those of its parts of the region.
func (g *gpu) newBank(need *exchange.Need, offsets [8]int, rows int) *gpuBank {
	cfg, me := g.Cfg, g.Comm.Rank()
	// What peers read is in the region too: it is given back when all ranks have closed, so that none reads what is gone.
	b := &gpuBank{GPUBank: g.Dev.NewBank(need, g.region.At(me, offsets[6], cfg.DType, g.Dev.OutputRows(), cfg.Hidden))}
	slots := int(cfg.MaxSlots())
	got, bank := &b.Got, &b.bank
	got.X = g.region.At(me, offsets[0], cfg.Wire, rows, cfg.WireCols)
	g.Dev.Hold(got.X)
	arriving := &b.GPUBank
	if cfg.LowLatency {
		arriving = &b.pushed
	}
	arriving.Poisoned(got.X)
	b.Poisoned(got.Y, got.Index.Counts, got.Index.Offsets)
	if t, n := cfg.Scales(); n > 0 {
		got.Scales = g.region.At(me, offsets[1], t, rows, n)
		arriving.Poisoned(got.Scales)
	}
	got.Index.Row = g.region.At(me, offsets[2], dtype.I32, 1, slots)
	got.Index.K = g.region.At(me, offsets[3], dtype.I32, 1, slots)
	got.Index.Weight = g.region.At(me, offsets[4], dtype.F32, 1, slots)
	b.Poisoned(got.Index.Row, got.Index.K, got.Index.Weight)
	if g.presum {
		b.slot = g.region.At(me, offsets[5], dtype.I32, cfg.MaxRecvRows, cfg.TopK)
		b.partial = g.region.At(me, offsets[7], cfg.DType, cfg.MaxRecvRows, cfg.Hidden)
		b.Poisoned(b.slot, b.partial)
	}
	terms := need.Buffer(dtype.I32, cfg.MaxTokensPerRank, cfg.TopK*kernels.TermBytes/4)
	sent := need.Buffer(dtype.I32, cfg.MaxTokensPerRank, int(g.exchange.Fan)*kernels.SentBytes/4)
	b.Poisoned(terms, sent)
	*bank = kernels.Bank{X: uint64(offsets[0]), Scales: uint64(offsets[1]), Row: uint64(offsets[2]), K: uint64(offsets[3]),
		Weight: uint64(offsets[4]), Slot: uint64(offsets[5]),
		Counts: exchange.Addr(got.Index.Counts), Offsets: exchange.Addr(got.Index.Offsets), NumRows: exchange.Addr(got.NumRows),
		Dropped: exchange.Addr(got.Dropped), NumTokens: exchange.Addr(b.NumTokens), Terms: exchange.Addr(terms), Rows: exchange.Addr(sent)}
	return b
}

// few is the tokens up to which one block for each is enough.
const few = 256

// dispatch enqueues one kernel. A call that is wrong on this rank takes part all the same, and refuses.
func (g *gpu) dispatch(s comm.Stream, rows comm.Buffer, r ep.Routing) (*ep.Received, error) {
	batch, cause := g.Check(rows, r)
	if cause != nil && g.Closed() {
		return nil, cause
	}
	free, err := g.Free() // also of a refused call: all ranks must mean the same bank
	if cause == nil {
		cause = err
	}
	a, b := g.send, g.banks[free]
	poisoned := &b.GPUBank
	if cause != nil {
		poisoned = nil // it may hold a result
	}
	number := g.NextNumber()
	g.arguments(a, b, batch, r, cause != nil)
	m := &a.Meet
	m.Kind, m.Ragged, m.NumOwn, m.Own = kernels.Split, 1, kernels.MaxRanks, g.exchange.Scratch+32
	m.Entry.Signature = g.base[0] ^ number*0x9e3779b97f4a7c15 ^ uint64(free)<<48
	if exchange.Poison.Load() { // peers may still read what is about to be filled: only tests fill it
		if err := g.Comm.Barrier(s); err != nil {
			return nil, err
		}
	}
	seat, err := g.Dev.Seat(s, m, kernels.Note{Label: "dispatch", Shape: g.shape, Tag: number}, poisoned)
	if err == nil {
		blocks := seat.Blocks
		if a.Tokens <= few {
			blocks = min(blocks, max(1, int(a.Tokens)))
		}
		err = g.Dev.Failed("dispatch", seat.Set.Dispatch(seat.Stream, a, blocks))
	}
	if cause != nil {
		return nil, cause
	}
	if err != nil {
		return nil, err
	}
	return g.Take(g.Banks()[free], &b.GPUBank, s, batch.NumRows), nil
}

// arguments fills in what a dispatch kernel needs, but for how it meets.
func (g *gpu) arguments(a *kernels.DispatchArgs, b *gpuBank, batch exchange.Batch, r ep.Routing, refuse bool) {
	a.Exchange, a.Bank, a.Flags = g.exchange, b.bank, g.flags
	a.Src, a.IDs, a.Weights, a.NumTokens, a.SrcStride, a.Tokens = 0, 0, 0, 0, 0, 0
	a.Scales, a.ScaleStride = 0, 0
	if refuse {
		a.Flags |= kernels.Refuse
		a.Bank = kernels.Bank{} // it may hold a result
	} else {
		a.Src, a.IDs, a.Weights = exchange.Addr(batch.X), exchange.Addr(r.IDs), exchange.Addr(r.Weights)
		a.SrcStride, a.Tokens = exchange.Stride(batch.X), uint32(batch.NumRows)
		if !batch.Scales.IsZero() {
			a.Scales, a.ScaleStride = exchange.Addr(batch.Scales), exchange.Stride(batch.Scales)
		}
		if batch.NumTokens < 0 {
			a.NumTokens = exchange.Addr(r.NumTokens)
		}
	}
	a.RowBytes, a.ScaleBytes, a.DType, a.FP8 = uint32(g.rowBytes), uint32(g.scaleBytes), uint32(g.Cfg.DType), 0
	if g.Cfg.Quantises() {
		a.FP8 = 1
	}
}

// combine enqueues one kernel, or two when partial rows are made first.
func (g *gpu) combine(s comm.Stream, out, y comm.Buffer, r *ep.Received, bias []comm.Buffer) error {
	t, err := g.CheckCombine(out, y, r, bias)
	if err != nil {
		return err
	}
	defer t.Release()
	b, a := g.banks[t.Number], g.back
	g.target(a, b, t)
	note := kernels.Note{Label: "combine", Shape: g.shape, Tag: t.Tag}
	src := t.Y
	if g.presum {
		if err := g.sumHere(s, b, t.Y, note); err != nil {
			return err
		}
		src = b.partial
	}
	m := &a.Meet
	m.Kind, m.Entry.NumParts = kernels.Split, 1
	m.Entry.Signature = g.base[1] ^ t.Tag*0x9e3779b97f4a7c15
	m.Entry.Parts[0] = kernels.Part{Src: exchange.Addr(src), SrcStride: exchange.Stride(src), SrcRows: uint32(src.Rows()),
		Cols: uint32(src.Cols()), DTyp: uint32(src.DType())}
	if !t.InPlace && !g.presum {
		m.Entry.Parts[0].DstRows = 1 // the caller may overwrite it at once: wait until all have read
	}
	seat, err := g.Dev.Seat(s, m, note, nil)
	if err == nil {
		err = g.Dev.Failed("combine", seat.Set.Combine(seat.Stream, a, seat.Blocks))
	}
	return err
}

// target fills in what a combine kernel needs, but for how it meets.
func (g *gpu) target(a *kernels.CombineArgs, b *gpuBank, t exchange.Taken) {
	a.Terms, a.Rows, a.NumTokens = b.bank.Terms, b.bank.Rows, b.bank.NumTokens
	a.Out, a.OutStride, a.NumBias = 0, 0, uint64(len(t.Bias))
	if !t.Out.IsZero() {
		a.Out, a.OutStride = exchange.Addr(t.Out), exchange.Stride(t.Out)
	}
	for i, v := range t.Bias {
		a.Bias[i], a.BiasStride[i] = exchange.Addr(v), exchange.Stride(v)
	}
	a.TopK, a.Fan, a.DType, a.Hidden = uint32(g.Cfg.TopK), g.exchange.Fan, uint32(g.Cfg.DType), uint32(g.Cfg.Hidden)
	switch {
	case g.Cfg.RankInvariant:
		a.Mode = kernels.SumInvariant
	case g.Cfg.Output == ep.PartialRows || g.presum:
		a.Mode = kernels.SumPartials
	default:
		a.Mode = kernels.SumExperts
	}
}

// sumHere makes this rank's partial rows of its expert rows.
func (g *gpu) sumHere(s comm.Stream, b *gpuBank, y comm.Buffer, note kernels.Note) error {
	seat, err := g.Dev.Seat(s, nil, note, nil)
	if err != nil {
		return err
	}
	*g.partial = kernels.PartialArgs{Dst: exchange.Addr(b.partial), DstStride: exchange.Stride(b.partial), Y: exchange.Addr(y), YStride: exchange.Stride(y),
		Slot: exchange.Addr(b.slot), Weight: exchange.Addr(b.Got.Index.Weight), NumRows: b.bank.NumRows,
		TopK: uint32(g.Cfg.TopK), Hidden: uint32(g.Cfg.Hidden), DType: uint32(g.Cfg.DType), MaxRows: uint32(g.Cfg.MaxRecvRows)}
	return g.Dev.Failed("combine", seat.Set.Partials(seat.Stream, g.partial, seat.Most))
}

// close gives the region back; the last rank's call frees it.
func (g *gpu) close(ctx context.Context) error { return g.region.Close(ctx) }
