package agrs

import (
	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/dtype"
	"github.com/weftgo/weft/ep"
	"github.com/weftgo/weft/internal/kernels/exchange"
)

// host is the engine of the CPU.
type host struct {
	*exchange.Core
	banks []*bank
	parts [4]comm.Part
	op    comm.Op     // of Combine
	own   []int32     // [1]: this rank's tokens
	each  []int32     // 0, 1, 2, ...
	empty comm.Buffer // x of no tokens

	noScales comm.Buffer // the caller's scales of no tokens
}

// bank is what agrs keeps with a result.
type bank struct {
	*exchange.Bank
	counts []int32       // [size]: tokens of each rank, as gathered
	host   []int         // [size]: the same
	ids    *exchange.Mem // int32 [size x max, topK], gathered
	q, qs  *exchange.Mem // this rank's rows and scales on an fp8 wire
	wide   *exchange.Mem // float32 [numRows, hidden]: partial rows when a bias is to be added
	sums   *exchange.Mem // float32 [numTokens, hidden]: their sum
}

func newHost(core *exchange.Core) (*host, error) {
	c := core.Comm
	x := &host{Core: core, own: make([]int32, 1)}
	var err error
	typ, cols := core.Cfg.Input()
	if x.empty, err = comm.Alloc(c, typ, 0, cols); err != nil {
		return nil, err
	}
	cfg, scales := core.Cfg, max(core.Cfg.NumScales(), 1)
	if cfg.ScaleBytes > 0 {
		if x.noScales, err = comm.Alloc(c, dtype.U8, 0, cfg.ScaleBytes); err != nil {
			return nil, err
		}
	}
	for _, b := range core.Banks() {
		x.banks = append(x.banks, &bank{Bank: b,
			counts: make([]int32, c.Size()),
			host:   make([]int, c.Size()),
			ids:    b.Own(dtype.I32, cfg.TopK, cfg.MaxRecvRows),
			q:      b.Own(cfg.Wire, cfg.Hidden, cfg.MaxTokensPerRank),
			qs:     b.Own(dtype.F32, scales, cfg.MaxTokensPerRank),
			wide:   b.Own(dtype.F32, cfg.Hidden, cfg.MaxRecvRows),
			sums:   b.Own(dtype.F32, cfg.Hidden, cfg.MaxTokensPerRank),
		})
	}
	return x, nil
}

func (x *host) dispatch(s comm.Stream, rows comm.Buffer, r ep.Routing) (*ep.Received, error) {
	batch, err := x.Check(rows, r)
	if err != nil {
		return nil, x.refuseCall(s, err)
	}
	n, err := x.Free()
	if err != nil {
		return nil, x.refuseCall(s, err)
	}
	b := x.banks[n]
	numRows, err := x.gather(s, b, batch)
	if err != nil {
		return nil, err
	}
	ids, err := b.ids.Rows(x.Comm, numRows)
	if err != nil {
		return nil, err
	}
	locals, err := b.Locals.Rows(x.Comm, numRows)
	if err != nil {
		return nil, err
	}
	topK, at := x.Cfg.TopK, 0
	for src, n := range b.host {
		end := at + n*topK
		x.Table.Locals(exchange.View[int32](locals)[at:end], exchange.View[int32](ids)[at:end], topK, src, x.Comm.Rank())
		at = end
	}
	bad := 0
	for _, e := range batch.IDs {
		if !x.Table.Has(e) {
			bad++
		}
	}
	got, err := x.Receive(b.Bank, numRows, batch, bad, 0)
	if err != nil {
		return nil, err
	}
	size := x.Comm.Size()
	x.Count(b.Bank, batch.NumTokens, batch.NumTokens*size, batch.NumTokens*(size-1), bad, 0)
	return got, nil
}

// gather runs the one all_gatherv of a dispatch and returns the number of rows of all ranks.
func (x *host) gather(s comm.Stream, b *bank, batch exchange.Batch) (int, error) {
	src := [4]comm.Buffer{batch.X, comm.Of(batch.Weights, x.Cfg.TopK), comm.Of(batch.IDs, x.Cfg.TopK)}
	most := x.Comm.Size() * x.Cfg.MaxTokensPerRank
	dst := [4]*exchange.Mem{&b.X, &b.Weights, b.ids, &b.Scales}
	n := 3
	switch {
	case x.Cfg.ScaleBytes > 0:
		n, src[3] = 4, batch.Scales
	case x.Cfg.Quantises():
		n = 4
		q, err := b.q.Rows(x.Comm, batch.X.Rows())
		if err != nil {
			return 0, err
		}
		scales, err := b.qs.Rows(x.Comm, batch.X.Rows())
		if err != nil {
			return 0, err
		}
		x.Quantiser.Quantise(q, scales, batch.X)
		src[0], src[3] = q, scales
	}
	for i := range n {
		d, err := dst[i].Rows(x.Comm, most)
		if err != nil {
			return 0, err
		}
		x.parts[i] = comm.Part{Dst: d, Src: src[i]}
	}
	x.own[0] = int32(batch.NumTokens)
	counts := comm.OnDevice(comm.Of(x.own, 1), comm.Of(b.counts, len(b.counts)), x.Cfg.MaxTokensPerRank)
	if err := x.Comm.AllGatherV(s, counts, x.parts[:n]...); err != nil {
		return 0, x.explain(err)
	}
	rows := 0
	for i, n := range b.counts {
		b.host[i] = int(n)
		rows += int(n)
	}
	return rows, nil
}

func (x *host) combine(s comm.Stream, out, y comm.Buffer, r *ep.Received, bias []comm.Buffer) error {
	t, err := x.CheckCombine(out, y, r, bias)
	if err != nil {
		return err
	}
	defer t.Release()
	b := x.banks[t.Number]
	partial, err := x.partialRows(b, t)
	if err != nil {
		return err
	}
	sums := t.Out
	if len(bias) > 0 {
		if sums, err = b.sums.Rows(x.Comm, t.Out.Rows()); err != nil {
			return err
		}
	}
	x.parts[0] = comm.Part{Dst: sums, Src: partial}
	x.op = comm.Op{Kind: comm.ReduceScatterV, Reduce: comm.Sum, Parts: x.parts[:1], Send: comm.Host(b.host), Tag: t.Tag}
	err = x.Comm.Do(s, &x.op)
	if err == nil && len(bias) > 0 {
		x.addBias(t, sums)
	}
	return err
}

// partialRows returns [numRows, hidden], rounded to DType. When a bias follows, the type is fp32, so that the sum over
// ranks is rounded only after the bias.
func (x *host) partialRows(b *bank, t exchange.Taken) (comm.Buffer, error) {
	mem := &b.Out
	if len(t.Bias) > 0 {
		mem = b.wide
	}
	if x.Cfg.Output == ep.PartialRows && t.InPlace && (len(t.Bias) == 0 || x.Cfg.DType == dtype.F32) {
		x.Partials.Copy(t.Y, t.Y, &b.Index, x.Cfg.TopK)
		return t.Y, nil
	}
	dst, err := mem.Rows(x.Comm, t.NumRows)
	if err != nil {
		return comm.Buffer{}, err
	}
	if x.Cfg.Output == ep.PartialRows {
		x.Partials.Copy(dst, t.Y, &b.Index, x.Cfg.TopK)
	} else {
		x.Partials.Sum(dst, t.Y, &b.Index, x.Cfg.TopK, x.Cfg.DType)
	}
	return dst, nil
}
