package twolevel

import (
	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/internal/kernels/exchange"
)

// cross packs this rank's copies by node and sends them to the ranks of its number.
func (x *Exchange) cross(s comm.Stream, b *bank, batch exchange.Batch) (err error) {
	from := [4]comm.Buffer{batch.X, {}, comm.Of(batch.Weights, x.Cfg.TopK)}
	src := [4]comm.Buffer{{}, comm.Of(b.out.codes, x.Cfg.TopK)}
	switch {
	case x.Cfg.ScaleBytes > 0:
		from[3] = batch.Scales
	case x.Cfg.Quantises():
		if from[0], err = b.q.Rows(x.Comm, batch.NumTokens); err != nil {
			return err
		}
		if from[3], err = b.qs.Rows(x.Comm, batch.NumTokens); err != nil {
			return err
		}
		x.Quantiser.Quantise(from[0], from[3], batch.X)
	}
	pack := [4]*exchange.Mem{b.rows, nil, b.topW, b.scales}
	dst := [4]*exchange.Mem{b.relayX, b.codes, b.relayW, b.relayScales}
	rows := b.relayed[x.nodes]
	for i := range x.numParts() {
		if pack[i] != nil {
			if src[i], err = x.pack(pack[i], from[i], b.out.tokens); err != nil {
				return err
			}
		}
		d, err := dst[i].Rows(x.Comm, rows)
		if err != nil {
			return err
		}
		x.parts[i] = comm.Part{Dst: d, Src: src[i]}
	}
	return x.between.AllToAllV(s, comm.Host(b.hops.outSend), comm.Host(b.hops.outRecv), x.parts[:x.numParts()]...)
}

// numParts is how many tensors a dispatch sends: rows, experts, weights, scales.
func (x *Exchange) numParts() int {
	if x.Cfg.Quantises() || x.Cfg.ScaleBytes > 0 {
		return 4
	}
	return 3
}

// pack gathers rows of src into m.
func (x *Exchange) pack(m *exchange.Mem, src comm.Buffer, list []int32) (comm.Buffer, error) {
	dst, err := m.Rows(x.Comm, len(list))
	if err == nil {
		x.Gatherer.Gather(dst, src, list)
	}
	return dst, err
}

// fan sends what this rank relays on to the ranks of its node, the rows of one source node after the other, so that what arrives is
// in (source rank, token) order. It returns how many rows came.
func (x *Exchange) fan(s comm.Stream, b *bank) (numRows int, err error) {
	if err := x.route(b); err != nil {
		return 0, err
	}
	relayed, numRows := b.relayed[x.nodes], b.received[x.nodes]
	src := [4]comm.Buffer{{}, comm.Of(b.locals, x.Cfg.TopK)}
	var dst [4]comm.Buffer
	from := [4]*exchange.Mem{b.relayX, nil, b.relayW, b.relayScales}
	pack := [4]*exchange.Mem{b.onX, nil, b.onW, b.onScales}
	to := [4]*exchange.Mem{&b.X, &b.Locals, &b.Weights, &b.Scales}
	for i := range x.numParts() {
		if from[i] != nil {
			rows, err := from[i].Rows(x.Comm, relayed)
			if err != nil {
				return 0, err
			}
			if src[i], err = x.pack(pack[i], rows, b.token); err != nil {
				return 0, err
			}
		}
		if dst[i], err = to[i].Rows(x.Comm, numRows); err != nil {
			return 0, err
		}
	}
	for n := range x.nodes {
		for i := range x.numParts() {
			x.parts[i] = comm.Part{Dst: dst[i].Slice(b.received[n], b.received[n+1]), Src: src[i].Slice(b.copied[n], b.copied[n+1])}
		}
		if err := x.inside.AllToAllV(s, comm.Host(b.hops.inSend[n]), comm.Host(b.hops.inRecv[n]), x.parts[:x.numParts()]...); err != nil {
			return 0, err
		}
	}
	return numRows, nil
}

// route plans what goes on from the codes that came, and how what comes back is added up.
func (x *Exchange) route(b *bank) error {
	rows, err := b.codes.Rows(x.Comm, b.relayed[x.nodes])
	if err != nil {
		return err
	}
	codes, topK := exchange.View[int32](rows), x.Cfg.TopK
	b.token, b.locals = b.token[:0], b.locals[:0]
	b.join.Start, b.join.Item = append(b.join.Start[:0], 0), b.join.Item[:0]
	for n, p := range b.send {
		first, end := b.relayed[n], b.relayed[n+1]
		if err := p.Build(codes[first*topK:end*topK], topK); err != nil {
			return err
		}
		base := int32(len(b.token))
		for _, t := range p.Tokens {
			b.token = append(b.token, int32(first)+t)
		}
		b.locals = append(b.locals, p.Locals...)
		for t := range end - first {
			for _, c := range p.ByToken[p.TokenStart[t]:p.TokenStart[t+1]] {
				b.join.Item = append(b.join.Item, base+c)
			}
			b.join.Start = append(b.join.Start, int32(len(b.join.Item)))
		}
	}
	return nil
}
