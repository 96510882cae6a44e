package twolevel

import (
	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/dtype"
	"github.com/weftgo/weft/internal/kernels/exchange"
)

// cross packs this rank's copies by node and sends them to the ranks of its number. It returns the codes and weights that came.
func (x *Exchange) cross(s comm.Stream, b *bank, batch exchange.Batch) (meta []int32, err error) {
	topK := x.Cfg.TopK
	b.sendMeta = b.sendMeta[:0]
	for c, t := range b.out.tokens {
		b.sendMeta = append(b.sendMeta, b.out.codes[c*topK:(c+1)*topK]...)
		b.sendMeta = append(b.sendMeta, words(batch.Weights[int(t)*topK:int(t+1)*topK])...)
	}
	if err := x.give(s, b, sendBox, b.lists.send[:], b.out.tokens, b.sendMeta); err != nil {
		return nil, err
	}
	rows, scales := batch.X, batch.Scales
	if x.Cfg.Quantises() {
		if rows, err = b.q.Rows(x.Comm, batch.NumTokens); err != nil {
			return nil, err
		}
		if scales, err = b.qs.Rows(x.Comm, batch.NumTokens); err != nil {
			return nil, err
		}
		if err := x.hands.quantise(s, rows, scales, batch.X); err != nil {
			return nil, err
		}
	}
	src := [3]comm.Buffer{{}, {}, shaped(b.lists.send[1], dtype.I32, b.out.numCopies(), 2*topK)}
	if src[0], err = x.pack(s, b.rows, rows, b.lists.send[0]); err != nil {
		return nil, err
	}
	if x.scaled() {
		if src[1], err = x.pack(s, b.scales, scales, b.lists.send[0]); err != nil {
			return nil, err
		}
	}
	dst, err := x.room([3]*exchange.Mem{b.relayX, b.relayScales, b.relayMeta}, b.relayed[x.nodes])
	if err != nil {
		return nil, err
	}
	if err := x.move(s, x.between, dst, src, b.hops.outSend, b.hops.outRecv); err != nil {
		return nil, err
	}
	return x.hands.take(s, b, dst[2])
}

// scaled says whether rows travel with scales.
func (x *Exchange) scaled() bool { return x.Cfg.Quantises() || x.Cfg.ScaleBytes > 0 }

// pack gathers rows of src into m.
func (x *Exchange) pack(s comm.Stream, m *exchange.Mem, src, list comm.Buffer) (comm.Buffer, error) {
	dst, err := m.Rows(x.Comm, list.Rows())
	if err != nil {
		return dst, err
	}
	return dst, x.hands.gather(s, dst, src, list)
}

// room returns so many rows of each: rows, scales where there are, and words.
func (x *Exchange) room(mem [3]*exchange.Mem, rows int) (b [3]comm.Buffer, err error) {
	for i, m := range mem {
		if i == 1 && !x.scaled() {
			continue
		}
		if b[i], err = m.Rows(x.Comm, rows); err != nil {
			return b, err
		}
	}
	return b, nil
}

// move is the alltoallv of a leg: rows, scales where there are, and words.
func (x *Exchange) move(s comm.Stream, c *comm.Comm, dst, src [3]comm.Buffer, send, recv []int) error {
	parts := x.parts[:0]
	for i := range dst {
		if i != 1 || x.scaled() {
			parts = append(parts, comm.Part{Dst: dst[i], Src: src[i]})
		}
	}
	return c.AllToAllV(s, comm.Host(send), comm.Host(recv), parts...)
}

// fan sends what this rank relays on to the ranks of its node, the rows of one source node after the other, so that what arrives is
// in (source rank, token) order. meta is what came with the rows.
func (x *Exchange) fan(s comm.Stream, b *bank, meta []int32) error {
	if err := x.route(b, meta); err != nil {
		return err
	}
	if err := x.give(s, b, relayBox, b.lists.relay[:], b.token, b.onMeta, b.join.Start, b.join.Item); err != nil {
		return err
	}
	topK := x.Cfg.TopK
	from, err := x.room([3]*exchange.Mem{b.relayX, b.relayScales, b.relayMeta}, b.relayed[x.nodes])
	if err != nil {
		return err
	}
	src := [3]comm.Buffer{{}, {}, shaped(b.lists.relay[1], dtype.I32, len(b.token), 2*topK)}
	if src[0], err = x.pack(s, b.onX, from[0], b.lists.relay[0]); err != nil {
		return err
	}
	if x.scaled() {
		if src[1], err = x.pack(s, b.onScales, from[1], b.lists.relay[0]); err != nil {
			return err
		}
	}
	dst, err := x.room([3]*exchange.Mem{&b.X, &b.Scales, b.meta}, b.received[x.nodes])
	if err != nil {
		return err
	}
	for n := range x.nodes {
		var to, of [3]comm.Buffer
		for i := range dst {
			if i != 1 || x.scaled() {
				to[i], of[i] = dst[i].Slice(b.received[n], b.received[n+1]), src[i].Slice(b.copied[n], b.copied[n+1])
			}
		}
		if err := x.move(s, x.inside, to, of, b.hops.inSend[n], b.hops.inRecv[n]); err != nil {
			return err
		}
	}
	came, err := x.hands.take(s, b, dst[2])
	if err != nil {
		return err
	}
	b.locals, b.weights = b.locals[:0], b.weights[:0]
	for i := 0; i < len(came); i += 2 * topK {
		b.locals = append(b.locals, came[i:i+topK]...)
		b.weights = append(b.weights, came[i+topK:i+2*topK]...)
	}
	return nil
}

// route plans what goes on from the codes that came, and how what comes back is added up.
func (x *Exchange) route(b *bank, meta []int32) error {
	topK := x.Cfg.TopK
	b.codes = b.codes[:0]
	for i := 0; i < len(meta); i += 2 * topK {
		b.codes = append(b.codes, meta[i:i+topK]...)
	}
	b.token, b.onMeta = b.token[:0], b.onMeta[:0]
	b.join.Start, b.join.Item = append(b.join.Start[:0], 0), b.join.Item[:0]
	next := int32(0)
	for r, rows := range b.hops.backRecv {
		b.first[r] = next
		next += int32(rows)
	}
	for n, p := range b.send {
		first, end := b.relayed[n], b.relayed[n+1]
		if err := p.Build(b.codes[first*topK:end*topK], topK); err != nil {
			return err
		}
		for c, t := range p.Tokens {
			row := first + int(t)
			b.token = append(b.token, int32(row))
			b.onMeta = append(b.onMeta, p.Locals[c*topK:(c+1)*topK]...)
			b.onMeta = append(b.onMeta, meta[(2*row+1)*topK:(2*row+2)*topK]...)
		}
		for t := range end - first {
			r := 0 // a row's copies are in rank order
			for _, c := range p.ByToken[p.TokenStart[t]:p.TokenStart[t+1]] {
				for p.Start[r+1] <= c {
					r++
				}
				b.join.Item = append(b.join.Item, b.first[r]+c-p.Start[r])
			}
			b.join.Start = append(b.join.Start, int32(len(b.join.Item)))
		}
		for r := range b.first {
			b.first[r] += p.Start[r+1] - p.Start[r]
		}
	}
	return nil
}
