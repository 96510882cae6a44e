package agrs

import (
	"context"
	"errors"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/dtype"
	"github.com/weftgo/weft/ep"
	"github.com/weftgo/weft/internal/kernels"
	"github.com/weftgo/weft/internal/kernels/exchange"
)

// gpu is the engine of a GPU: one all_gatherv and the kernels that index its rows; kernels that make partial rows and one
// reduce_scatterv. Numbers of tokens stay on the device.
type gpu struct {
	*exchange.Core
	banks []*gpuBank
	empty comm.Buffer // x of no tokens
	parts [4]comm.Part
	op    comm.Op // of Combine

	// Parameters of launches, allocated once: the driver reads them by address.
	index   *kernels.IndexArgs
	quant   *kernels.QuantArgs
	partial *kernels.PartialArgs
	bias    *kernels.BiasArgs
	expand  *kernels.ExpandArgs
}

type gpuBank struct {
	exchange.GPUBank
	counts             comm.Buffer // int32 [1, size]: tokens of each rank, as gathered
	x, scales          comm.Buffer // gathered; Got's own in the layout Rows
	ids, weights, slot comm.Buffer // [MaxRecvRows, topK]
	q, qs              comm.Buffer // this rank's rows and scales on an fp8 wire
	out                comm.Buffer // DType [MaxRecvRows, hidden]: partial rows
	wide, sums         comm.Buffer // float32 [MaxRecvRows, hidden], [MaxTokensPerRank, hidden]: when a bias follows
	ticket, scratch    comm.Buffer
}

func newGPU(core *exchange.Core) (*gpu, error) {
	g := &gpu{Core: core, index: new(kernels.IndexArgs), quant: new(kernels.QuantArgs), partial: new(kernels.PartialArgs),
		bias: new(kernels.BiasArgs), expand: new(kernels.ExpandArgs)}
	need := exchange.Need{Dev: core.Dev}
	typ, cols := core.Cfg.Input()
	g.empty = need.Buffer(typ, 1, cols)
	for range core.Cfg.Banks {
		g.banks = append(g.banks, g.newBank(&need))
	}
	if need.Err == nil {
		g.empty = g.empty.Slice(0, 0)
	}
	return g, need.Err
}

func (g *gpu) newBank(need *exchange.Need) *gpuBank {
	cfg := g.Cfg
	b := &gpuBank{GPUBank: g.Dev.NewBank(need, need.Buffer(cfg.DType, g.Dev.OutputRows(), cfg.Hidden))}
	got, slots, recv, tokens := &b.Got, int(cfg.MaxSlots()), cfg.MaxRecvRows, cfg.MaxTokensPerRank
	b.counts = need.Buffer(dtype.I32, 1, g.Comm.Size())
	b.x = need.Buffer(cfg.Wire, recv, cfg.WireCols)
	got.X = b.x
	b.ids, b.slot = need.Buffer(dtype.I32, recv, cfg.TopK), need.Buffer(dtype.I32, recv, cfg.TopK)
	b.weights = need.Buffer(dtype.F32, recv, cfg.TopK)
	got.Index.Row, got.Index.K = need.Buffer(dtype.I32, 1, slots), need.Buffer(dtype.I32, 1, slots)
	got.Index.Weight = need.Buffer(dtype.F32, 1, slots)
	scale, numScales := cfg.Scales()
	if numScales > 0 {
		b.scales = need.Buffer(scale, recv, numScales)
		got.Scales = b.scales
		b.Poisoned(b.scales)
	}
	if cfg.Quantises() {
		b.q, b.qs = need.Buffer(cfg.Wire, tokens, cfg.Hidden), need.Buffer(dtype.F32, tokens, numScales)
	}
	if cfg.Layout == ep.Expanded {
		got.X = need.Buffer(cfg.Wire, slots, cfg.WireCols)
		if numScales > 0 {
			got.Scales = need.Buffer(scale, slots, numScales)
			b.Poisoned(got.Scales)
		}
	}
	g.Dev.Hold(got.X)
	b.out = need.Buffer(cfg.DType, recv, cfg.Hidden)
	b.wide, b.sums = need.Buffer(dtype.F32, recv, cfg.Hidden), need.Buffer(dtype.F32, tokens, cfg.Hidden)
	b.ticket = need.Buffer(dtype.I32, 1, 1)
	b.scratch = need.Buffer(dtype.I32, 1, kernels.IndexScratch(recv, cfg.TopK, g.NumLocal)/4)
	b.Poisoned(b.x, got.X, got.Y, b.ids, b.slot, b.weights, got.Index.Row, got.Index.K, got.Index.Weight, got.Index.Counts,
		got.Index.Offsets, b.out, b.wide, b.sums)
	return b
}

func (g *gpu) dispatch(s comm.Stream, rows comm.Buffer, r ep.Routing) (*ep.Received, error) {
	batch, cause := g.Check(rows, r)
	if cause != nil && g.Closed() {
		return nil, cause
	}
	free, err := g.Free()
	if cause == nil {
		cause = err
	}
	number := g.NextNumber()
	b := g.banks[free]
	if cause != nil {
		return nil, g.refuseCall(s, b, cause)
	}
	note := kernels.Note{Label: "dispatch", Tag: number}
	seat, err := g.Dev.Seat(s, nil, note, &b.GPUBank)
	if err != nil {
		return nil, err
	}
	// A gather that fails writes no counts; then there are none.
	err = seat.Stream.Fill32(b.counts.Addr(), 0, g.Comm.Size())
	if err == nil && batch.NumTokens >= 0 {
		err = seat.Stream.Fill32(b.NumTokens.Addr(), uint32(batch.NumTokens), 1)
	} else if err == nil {
		err = seat.Stream.Copy(b.NumTokens.Addr(), r.NumTokens.Addr(), 4)
	}
	if err == nil {
		err = g.gather(s, seat, b, batch, r)
	}
	if err == nil {
		err = g.makeIndex(seat, b)
	}
	if err != nil {
		return nil, g.Dev.Failed("dispatch", err)
	}
	return g.Take(g.Banks()[free], &b.GPUBank, s, batch.NumRows), nil
}

// gather runs the one all_gatherv of a dispatch.
func (g *gpu) gather(s comm.Stream, seat kernels.Seat, b *gpuBank, batch exchange.Batch, r ep.Routing) error {
	n, x := 3, batch.X
	g.parts = [4]comm.Part{{Dst: b.x, Src: x}, {Dst: b.weights, Src: r.Weights}, {Dst: b.ids, Src: r.IDs}}
	if g.Cfg.ScaleBytes > 0 {
		n = 4
		g.parts[3] = comm.Part{Dst: b.scales, Src: batch.Scales}
	}
	if g.Cfg.Quantises() {
		n = 4
		tokens := min(x.Rows(), g.Cfg.MaxTokensPerRank)
		q, scales := b.q.Slice(0, tokens), b.qs.Slice(0, tokens)
		*g.quant = kernels.QuantArgs{Src: exchange.Addr(x), SrcStride: exchange.Stride(x), Q: exchange.Addr(q), Scales: exchange.Addr(scales),
			NumTokens: exchange.Addr(b.NumTokens), Rows: uint32(tokens), Hidden: uint32(g.Cfg.Hidden), DType: uint32(g.Cfg.DType)}
		if tokens > 0 {
			if err := seat.Set.Quantise(seat.Stream, g.quant, seat.Most); err != nil {
				return err
			}
		}
		g.parts[0].Src, g.parts[3] = q, comm.Part{Dst: b.scales, Src: scales}
	}
	g.Dev.Seater.Limit(g.Cfg.Blocks)
	defer g.Dev.Seater.Limit(0)
	return g.Comm.AllGatherV(s, comm.OnDevice(b.NumTokens, b.counts, g.Cfg.MaxTokensPerRank), g.parts[:n]...)
}

// makeIndex groups the gathered rows by local expert, and lays them out so when the layout is Expanded.
func (g *gpu) makeIndex(seat kernels.Seat, b *gpuBank) error {
	ix := &b.Got.Index
	*g.index = kernels.IndexArgs{Experts: g.Dev.Experts, IDs: exchange.Addr(b.ids), Weights: exchange.Addr(b.weights), RowsOf: exchange.Addr(b.counts),
		Row: exchange.Addr(ix.Row), K: exchange.Addr(ix.K), Weight: exchange.Addr(ix.Weight), Slot: exchange.Addr(b.slot),
		Counts: exchange.Addr(ix.Counts), Offsets: exchange.Addr(ix.Offsets), NumRows: exchange.Addr(b.Got.NumRows),
		Dropped: exchange.Addr(b.Got.Dropped), Stats: exchange.Addr(g.Dev.Stats), Ticket: exchange.Addr(b.ticket), Scratch: exchange.Addr(b.scratch),
		MaxRows: uint32(g.Cfg.MaxRecvRows)}
	if err := seat.Set.Index(seat.Stream, g.index, seat.Most); err != nil || g.Cfg.Layout != ep.Expanded {
		return err
	}
	*g.expand = kernels.ExpandArgs{Dst: exchange.Addr(b.Got.X), Src: exchange.Addr(b.x), Row: exchange.Addr(ix.Row), Offsets: exchange.Addr(ix.Offsets),
		Bytes: uint64(exchange.Stride(b.x)), NumLocal: uint32(g.NumLocal)}
	err := seat.Set.Expand(seat.Stream, g.expand, int(g.Cfg.MaxSlots()), seat.Most)
	if err == nil && !b.scales.IsZero() {
		g.expand.Dst, g.expand.Src, g.expand.Bytes = exchange.Addr(b.Got.Scales), exchange.Addr(b.scales), uint64(exchange.Stride(b.scales))
		err = seat.Set.Expand(seat.Stream, g.expand, int(g.Cfg.MaxSlots()), seat.Most)
	}
	return err
}

// refuseCall takes part in the all_gatherv of a dispatch that is wrong on this rank, with a count that no rank may give: every
// rank's kernel then moves nothing and says so. This rank waits for that, because the driver's complaint is about what cause
// says better.
func (g *gpu) refuseCall(s comm.Stream, b *gpuBank, cause error) error {
	seat, err := g.Dev.Seat(s, nil, kernels.Note{Label: "dispatch"}, nil)
	if err != nil {
		return errors.Join(cause, err)
	}
	word := b.ticket // not in use while no result is made
	minus := refused
	err = seat.Stream.Fill32(word.Addr(), uint32(int32(minus)), 1)
	if err == nil {
		ids, weights := b.ids.Slice(0, 0), b.weights.Slice(0, 0)
		n := 3
		g.parts = [4]comm.Part{{Dst: b.x, Src: g.empty}, {Dst: b.weights, Src: weights}, {Dst: b.ids, Src: ids}}
		if g.Cfg.ScaleBytes > 0 {
			n = 4
			g.parts[3] = comm.Part{Dst: b.scales, Src: b.scales.Slice(0, 0)}
		}
		if g.Cfg.Quantises() {
			n = 4
			g.parts[0].Src, g.parts[3] = b.q.Slice(0, 0), comm.Part{Dst: b.scales, Src: b.qs.Slice(0, 0)}
		}
		err = g.Comm.AllGatherV(s, comm.OnDevice(word, b.counts, g.Cfg.MaxTokensPerRank), g.parts[:n]...)
	}
	if err == nil {
		err = g.Comm.Wait(context.Background(), s)
	}
	if errors.Is(err, comm.Invalid) {
		err = nil
	}
	return errors.Join(cause, err, seat.Stream.Fill32(word.Addr(), 0, 1))
}

func (g *gpu) combine(s comm.Stream, out, y comm.Buffer, r *ep.Received, bias []comm.Buffer) error {
	t, err := g.CheckCombine(out, y, r, bias)
	if err != nil {
		return err
	}
	defer t.Release()
	b := g.banks[t.Number]
	note := kernels.Note{Label: "combine", Tag: t.Tag}
	seat, err := g.Dev.Seat(s, nil, note, nil)
	if err != nil {
		return err
	}
	src, dst := b.out, t.Out
	if len(bias) > 0 { // the sum over ranks is rounded only after the bias
		src, dst = b.wide, b.sums.Slice(0, min(t.Out.Rows(), b.sums.Rows()))
	}
	if g.Cfg.Output == ep.PartialRows && t.InPlace && (len(bias) == 0 || g.Cfg.DType == dtype.F32) {
		src = t.Y
	}
	*g.partial = kernels.PartialArgs{Dst: exchange.Addr(src), DstStride: exchange.Stride(src), Y: exchange.Addr(t.Y), YStride: exchange.Stride(t.Y),
		Slot: exchange.Addr(b.slot), Weight: exchange.Addr(b.Got.Index.Weight), NumRows: exchange.Addr(b.Got.NumRows),
		TopK: uint32(g.Cfg.TopK), Hidden: uint32(g.Cfg.Hidden), DType: uint32(g.Cfg.DType), MaxRows: uint32(g.Cfg.MaxRecvRows)}
	if src.DType() != g.Cfg.DType {
		g.partial.Wide = 1
	}
	if g.Cfg.Output == ep.PartialRows {
		g.partial.Copy = 1
	}
	err = seat.Set.Partials(seat.Stream, g.partial, seat.Most)
	if err == nil {
		g.parts[0] = comm.Part{Dst: dst, Src: src}
		g.op = comm.Op{Kind: comm.ReduceScatterV, Reduce: comm.Sum, Parts: g.parts[:1], Tag: t.Tag,
			Send: comm.OnDevice(b.NumTokens, b.counts, g.Cfg.MaxTokensPerRank)}
		g.Dev.Seater.Limit(g.Cfg.Blocks)
		err = g.Comm.Do(s, &g.op)
		g.Dev.Seater.Limit(0)
	}
	if err == nil && len(bias) > 0 {
		a := g.bias
		*a = kernels.BiasArgs{Sums: exchange.Addr(dst), Out: exchange.Addr(t.Out), OutStride: exchange.Stride(t.Out), NumTokens: exchange.Addr(b.NumTokens),
			NumBias: uint32(len(bias)), Hidden: uint32(g.Cfg.Hidden), DType: uint32(g.Cfg.DType), MaxTokens: uint32(dst.Rows())}
		for i, v := range bias {
			a.Bias[i], a.BiasStride[i] = exchange.Addr(v), exchange.Stride(v)
		}
		if dst.Rows() > 0 {
			err = seat.Set.Bias(seat.Stream, a, dst.Rows(), seat.Most)
		}
	}
	return g.Dev.Failed("combine", err)
}
