package twolevel

import (
	"context"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/dtype"
	"github.com/weftgo/weft/ep"
	"github.com/weftgo/weft/internal/kernels"
	"github.com/weftgo/weft/internal/kernels/exchange"
)

// device is the hands of a GPU: ids, codes and counts come to the host, which plans as for the CPU, and lists go up.
type device struct {
	x                *Exchange
	up               []int32 // what goes up
	down             []int32 // what came down
	ids              []int32
	weights          []float32
	own, column, all comm.Buffer // int32: of counts

	// Parameters of launches, allocated once: the driver reads them by address.
	gatherArgs *kernels.GatherArgs
	addArgs    *kernels.AddArgs
	quantArgs  *kernels.QuantArgs
}

// gpuBank is what a bank has beside on a GPU. All memory is taken at construction.
type gpuBank struct {
	exchange.GPUBank
	boxes        [numBoxes]comm.Buffer // int32 [words, 1]
	x, scales, y *exchange.Mem         // of the layout Expanded; output
	index        [7]comm.Buffer
}

func newDevice(x *Exchange) (*device, error) {
	h := &device{x: x, gatherArgs: new(kernels.GatherArgs), addArgs: new(kernels.AddArgs), quantArgs: new(kernels.QuantArgs)}
	need := exchange.Need{Dev: x.Dev}
	w := x.counts.width
	h.own, h.column, h.all = need.Buffer(dtype.I32, 1, w), need.Buffer(dtype.I32, x.nodes, w), need.Buffer(dtype.I32, x.ranks, x.nodes*w)
	for _, b := range x.banks {
		h.newBank(&need, b)
	}
	return h, need.Err
}

// newBank takes all memory that a bank can need.
func (h *device) newBank(need *exchange.Need, b *bank) {
	x, cfg := h.x, h.x.Cfg
	slots, k := int(cfg.MaxSlots()), cfg.TopK
	scale, scales := cfg.Scales()
	g := &gpuBank{}
	b.gpu = g
	g.x, g.scales = b.Own(cfg.Wire, cfg.WireCols, slots), b.Own(scale, max(scales, 1), slots)
	g.y = b.Own(cfg.DType, cfg.Hidden, x.Dev.OutputRows())
	list := []*exchange.Mem{b.rows, b.relayX, b.relayMeta, b.onX, b.meta, b.came, b.sums, b.returned, &b.X, &b.Out, g.y}
	if x.scaled() {
		list = append(list, b.scales, b.relayScales, b.onScales, &b.Scales)
	}
	if cfg.Quantises() {
		list = append(list, b.q, b.qs)
	}
	if cfg.Layout == ep.Expanded {
		if list = append(list, g.x); x.scaled() {
			list = append(list, g.scales)
		}
	}
	for _, m := range list {
		if need.Err == nil {
			var buf comm.Buffer
			buf, need.Err = m.All(x.Comm)
			g.Poisoned(buf)
		}
	}
	tokens, relay, recv := cfg.MaxTokensPerRank, x.relayRows(), cfg.MaxRecvRows
	copies, on := tokens*min(x.nodes, k), relay*min(x.ranks, k)
	words := [numBoxes]int{copies * (1 + 2*k), on*(2+2*k) + relay + 1, tokens + 1 + max(copies, 2*tokens*k), 3*slots + 3*x.NumLocal + 4}
	switch {
	case cfg.RankInvariant:
		words[backBox] += (recv + relay) * k
	case cfg.Output == ep.ExpertRows:
		words[backBox] += recv + 1 + 2*recv*k
	default:
		words[backBox] += recv
	}
	for i, n := range words {
		g.boxes[i] = need.Buffer(dtype.I32, n+maxLists*boxAlign, 1)
	}
}

// Lists in a box begin at multiples of 16 bytes.
const (
	maxLists = 8
	boxAlign = 4 // words
)

func (h *device) note(what string) kernels.Note {
	return kernels.Note{Label: what, Shape: "between nodes"}
}

func (h *device) seat(s comm.Stream, what string, b *exchange.GPUBank) (kernels.Seat, error) {
	return h.x.Dev.Seat(s, nil, h.note(what), b)
}

func (h *device) begin(s comm.Stream, what string) error {
	seat, err := h.seat(s, what, nil)
	if err != nil {
		return err
	}
	on, err := seat.Stream.Capturing()
	if err != nil {
		return h.x.Dev.Failed(what, err)
	}
	if on {
		return comm.Errorf("alltoall", h.x.Comm.WorldRank(), comm.Unavailable,
			"%s: between nodes the host waits for what came, so a graph cannot capture it; call it outside of the graph", what)
	}
	return nil
}

func (h *device) read(s comm.Stream, rows comm.Buffer, r ep.Routing) (b exchange.Batch, cause, fatal error) {
	x := h.x
	if b, cause = x.Check(rows, r); cause != nil {
		if x.Closed() {
			return b, nil, cause
		}
		return b, cause, nil
	}
	if b.NumTokens < 0 {
		n := []int32{0}
		if err := comm.Copy(x.Comm, s, comm.Of(n, 1), r.NumTokens); err != nil {
			return b, nil, err
		}
		if b.NumTokens = int(n[0]); b.NumTokens < 0 || b.NumTokens > b.NumRows {
			return b, x.Invalid("dispatch: NumTokens %d is not in [0, %d], the rows of x", b.NumTokens, b.NumRows), nil
		}
		if b.NumTokens > x.Cfg.MaxTokensPerRank {
			return b, x.Invalid("dispatch: %d tokens > MaxTokensPerRank %d", b.NumTokens, x.Cfg.MaxTokensPerRank), nil
		}
	}
	n, k := b.NumTokens, x.Cfg.TopK
	b.X = b.X.Slice(0, n)
	if !b.Scales.IsZero() {
		b.Scales = b.Scales.Slice(0, n)
	}
	h.ids, h.weights = resize(h.ids, n*k), resize(h.weights, n*k)
	b.IDs, b.Weights = h.ids, h.weights
	if n == 0 {
		return b, nil, nil
	}
	if err := comm.Copy(x.Comm, s, comm.Of(h.ids, k), r.IDs.Slice(0, n)); err != nil {
		return b, nil, err
	}
	return b, nil, comm.Copy(x.Comm, s, comm.Of(h.weights, k), r.Weights.Slice(0, n))
}

func (h *device) agree(s comm.Stream, c *counts) error {
	x := h.x
	if err := comm.Copy(x.Comm, s, h.own, comm.Of(c.own, c.width)); err != nil {
		return err
	}
	if err := x.between.AllGather(s, h.column, h.own); err != nil {
		return err
	}
	if err := h.done(s, x.between); err != nil {
		return err
	}
	if err := x.inside.AllGather(s, h.all, shaped(h.column, dtype.I32, 1, c.nodes*c.width)); err != nil {
		return err
	}
	return h.fetch(s, comm.Of(c.all, c.nodes*c.width), h.all)
}

// fetch copies to the host when both levels have done their work, each of which names the rank that it waits for in vain.
func (h *device) fetch(s comm.Stream, dst, src comm.Buffer) error {
	if err := h.x.Comm.Wait(context.Background(), s); err != nil || src.Rows() == 0 {
		return err
	}
	return comm.Copy(h.x.Comm, s, dst, src)
}

func (h *device) done(s comm.Stream, level *comm.Comm) error {
	return level.Wait(context.Background(), s)
}

func (h *device) prepare(s comm.Stream, b *bank) error {
	_, err := h.seat(s, "dispatch", &b.gpu.GPUBank)
	return err
}

func (h *device) give(s comm.Stream, b *bank, box int, to []comm.Buffer, lists [][]int32) error {
	h.up = h.up[:0]
	at := b.gpu.boxes[box]
	for i, l := range lists {
		to[i] = comm.At(at.Device(), at.Addr()+uintptr(4*len(h.up)), dtype.I32, len(l), 1, 1)
		h.up = append(h.up, l...)
		for len(h.up)%boxAlign != 0 {
			h.up = append(h.up, 0)
		}
	}
	if len(h.up) == 0 {
		return nil
	}
	return comm.Copy(h.x.Comm, s, at.Slice(0, len(h.up)), comm.Of(h.up, 1))
}

func (h *device) take(s comm.Stream, b *bank, words comm.Buffer) ([]int32, error) {
	h.down = resize(h.down, words.Rows()*words.Cols())
	return h.down, h.fetch(s, comm.Of(h.down, words.Cols()), words)
}

func (h *device) gather(s comm.Stream, dst, src, list comm.Buffer) error {
	seat, err := h.seat(s, "gather", nil)
	if err != nil {
		return err
	}
	*h.gatherArgs = kernels.GatherArgs{Dst: exchange.Addr(dst), Src: exchange.Addr(src), List: exchange.Addr(list),
		DstStride: exchange.Stride(dst), SrcStride: exchange.Stride(src), Rows: uint64(list.Rows()), Bytes: uint64(dst.Cols() * dst.DType().Size())}
	return h.x.Dev.Failed("gather", seat.Set.Gather(seat.Stream, h.gatherArgs, h.x.Cfg.Blocks))
}

func (h *device) quantise(s comm.Stream, q, scales, x comm.Buffer) error {
	if x.Rows() == 0 {
		return nil
	}
	seat, err := h.seat(s, "quantise", nil)
	if err != nil {
		return err
	}
	*h.quantArgs = kernels.QuantArgs{Src: exchange.Addr(x), Q: exchange.Addr(q), Scales: exchange.Addr(scales), SrcStride: exchange.Stride(x),
		Rows: uint32(x.Rows()), Hidden: uint32(x.Cols()), DType: uint32(x.DType())}
	return h.x.Dev.Failed("quantise", seat.Set.Quantise(seat.Stream, h.quantArgs, h.x.Cfg.Blocks))
}

func (h *device) add(s comm.Stream, out, rows comm.Buffer, t sums, bias []comm.Buffer) error {
	seat, err := h.seat(s, "combine", nil)
	if err != nil {
		return err
	}
	a := h.addArgs
	*a = kernels.AddArgs{Out: exchange.Addr(out), Rows: exchange.Addr(rows), Start: exchange.Addr(t.start), Item: exchange.Addr(t.item),
		OutStride: exchange.Stride(out), RowsStride: exchange.Stride(rows), NumRows: uint64(out.Rows()), NumBias: uint32(len(bias)),
		Hidden: uint32(out.Cols()), DType: uint32(out.DType())}
	if !t.weight.IsZero() {
		a.Weight = exchange.Addr(t.weight)
	}
	for i, v := range bias {
		a.Bias[i], a.BiasStride[i] = exchange.Addr(v), exchange.Stride(v)
	}
	return h.x.Dev.Failed("combine", seat.Set.Add(seat.Stream, a, h.x.Cfg.Blocks))
}

func (h *device) receive(s comm.Stream, b *bank, batch exchange.Batch, dropped int) (*ep.Received, error) {
	x, cfg, ix, rows := h.x, h.x.Cfg, &b.Index, b.received[h.x.nodes]
	ix.Build(b.locals, floats(b.weights), cfg.TopK, x.NumLocal, cfg.Alignment)
	small := [3]int32{int32(rows), int32(b.plan.DroppedIDs), int32(dropped)}
	list := &b.gpu.index
	if err := x.give(s, b, indexBox, list[:], ix.Row, ix.K, words(ix.Weight), ix.Counts, ix.Offsets, small[:1], small[1:]); err != nil {
		return nil, err
	}
	slots := ix.NumSlots()
	got := &b.gpu.Got
	line := func(list comm.Buffer, t dtype.DType) comm.Buffer {
		if list.Rows() == 0 {
			return shaped(list, t, 0, 1)
		}
		return shaped(list, t, 1, list.Rows())
	}
	got.Index = ep.Index{Row: line(list[0], dtype.I32), K: line(list[1], dtype.I32), Weight: line(list[2], dtype.F32), Offsets: line(list[4], dtype.I32),
		Counts: shaped(list[3], dtype.I32, min(2, 2*x.NumLocal), max(1, x.NumLocal))}
	got.NumRows, got.Dropped = line(list[5], dtype.I32), line(list[6], dtype.I32)
	x.NextNumber()
	var err error
	if got.X, err = b.X.Rows(x.Comm, rows); err != nil {
		return nil, err
	}
	if x.scaled() {
		if got.Scales, err = b.Scales.Rows(x.Comm, rows); err != nil {
			return nil, err
		}
	}
	if cfg.Layout == ep.Expanded {
		if got.X, err = x.pack(s, b.gpu.x, got.X, list[0]); err != nil {
			return nil, err
		}
		if x.scaled() {
			if got.Scales, err = x.pack(s, b.gpu.scales, got.Scales, list[0]); err != nil {
				return nil, err
			}
		}
	}
	if cfg.Output == ep.PartialRows {
		slots = rows
	}
	if got.Y, err = b.gpu.y.Rows(x.Comm, slots); err != nil {
		return nil, err
	}
	return x.Take(b.Bank, &b.gpu.GPUBank, s, batch.NumRows), nil
}
