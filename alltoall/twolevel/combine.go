package twolevel

import (
	"errors"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/ep"
	"github.com/weftgo/weft/internal/kernels/exchange"
)

// terms is how expert rows become partial rows or (RankInvariant) travel back, decided at Dispatch.
type terms struct {
	give []int32 // slots of the received rows, by rank that they go to, source node, token and k
	pass []int32 // rows that came to this relay, in the order in which they go to the sources: (relayed row, k)
	sum  exchange.Terms
	part exchange.Terms // of a rank's partial rows, else
	at   []int32        // [rows, topK]: scratch

	inSend, inRecv   []int // [ranks]: expert rows to and from the ranks of this node
	outSend, outRecv []int // [nodes]: to and from the nodes
}

func newTerms(nodes, ranks int) terms {
	return terms{inSend: make([]int, ranks), inRecv: make([]int, ranks), outSend: make([]int, nodes), outRecv: make([]int, nodes)}
}

// prepareReturn decides what comes back and in which order, from this dispatch's plans and index alone. Received rows go back by
// rank of the node that relayed them.
func (x *Exchange) prepareReturn(s comm.Stream, b *bank, batch exchange.Batch) error {
	b.order = b.order[:0]
	for r := range x.ranks {
		for n, rows := range b.hops.inRecv {
			first := b.received[n]
			for _, before := range rows[:r] {
				first += before
			}
			for i := range rows[r] {
				b.order = append(b.order, int32(first+i))
			}
		}
	}
	t, topK, to := &b.terms, x.Cfg.TopK, b.lists.back[:]
	switch {
	case x.Cfg.RankInvariant:
		t.pack(b, topK)
		t.relay(b, topK)
		t.home(b, batch, topK)
		return x.give(s, b, backBox, to, t.sum.Start, t.sum.Item, words(t.sum.Weight), t.give, t.pass)
	case x.Cfg.Output == ep.ExpertRows:
		t.partial(b, topK)
		return x.give(s, b, backBox, to, b.out.tokenStart, b.out.byToken, nil, t.part.Start, t.part.Item, words(t.part.Weight))
	}
	return x.give(s, b, backBox, to, b.out.tokenStart, b.out.byToken, nil, b.order)
}

// partial lists the slots of each row that goes back, in k order.
func (t *terms) partial(b *bank, topK int) {
	p := &t.part
	p.Start, p.Item, p.Weight = append(p.Start[:0], 0), p.Item[:0], p.Weight[:0]
	for _, row := range b.order {
		for _, slot := range b.Index.Slot[int(row)*topK : int(row+1)*topK] {
			if slot >= 0 {
				p.Item, p.Weight = append(p.Item, slot), append(p.Weight, b.Index.Weight[slot])
			}
		}
		p.Start = append(p.Start, int32(len(p.Item)))
	}
}

// pack lists the slots of the rows that go back.
func (t *terms) pack(b *bank, topK int) {
	t.give = t.give[:0]
	list := b.order
	for r, rows := range b.hops.backSend {
		before := len(t.give)
		for _, row := range list[:rows] {
			t.give = appendUsed(t.give, b.Index.Slot[int(row)*topK:int(row+1)*topK])
		}
		t.inSend[r] = len(t.give) - before
		list = list[rows:]
	}
}

// appendUsed appends what is not -1.
func appendUsed(list, from []int32) []int32 {
	for _, v := range from {
		if v >= 0 {
			list = append(list, v)
		}
	}
	return list
}

// relay numbers the expert rows that come to this relay as the ranks of the node pack them.
func (t *terms) relay(b *bank, topK int) {
	nodes := len(b.send)
	t.at = resize(t.at, b.relayed[nodes]*topK)
	for i := range t.at {
		t.at[i] = -1
	}
	clear(t.outSend)
	next := int32(0)
	for r := range t.inRecv {
		first := next
		for n, p := range b.send {
			before := next
			for c := int(p.Start[r]); c < int(p.Start[r+1]); c++ {
				next = number(t.at[(b.relayed[n]+int(p.Tokens[c]))*topK:], p.Locals[c*topK:(c+1)*topK], next)
			}
			t.outSend[n] += int(next - before)
		}
		t.inRecv[r] = int(next - first)
	}
	t.pass = appendUsed(t.pass[:0], t.at)
}

// number gives the next numbers to the choices of one copy that are not -1, and returns the number after.
func number(at, choices []int32, next int32) int32 {
	for k, v := range choices {
		if v >= 0 {
			at[k] = next
			next++
		}
	}
	return next
}

// home numbers the expert rows that come home by node, token and k, as the relays pass them on, and lists each token's in k order.
func (t *terms) home(b *bank, batch exchange.Batch, topK int) {
	t.at = resize(t.at, batch.NumTokens*topK)
	for i := range t.at {
		t.at[i] = -1
	}
	o, next := &b.out, int32(0)
	for n := range t.outRecv {
		first := next
		for c := o.start[n]; c < o.start[n+1]; c++ {
			next = number(t.at[int(o.tokens[c])*topK:], o.codes[c*topK:(c+1)*topK], next)
		}
		t.outRecv[n] = int(next - first)
	}
	s := &t.sum
	s.Start, s.Item, s.Weight = append(s.Start[:0], 0), s.Item[:0], s.Weight[:0]
	for token := range batch.NumTokens {
		for i := token * topK; i < (token+1)*topK; i++ {
			if t.at[i] >= 0 {
				s.Item, s.Weight = append(s.Item, t.at[i]), append(s.Weight, batch.Weights[i])
			}
		}
		s.Start = append(s.Start, int32(len(s.Item)))
	}
}

// Combine brings partial rows (RankInvariant: expert rows) back over the relays, which add them up, and sums the nodes' here; see
// [ep.Exchanger].
func (x *Exchange) Combine(s comm.Stream, out, y comm.Buffer, r *ep.Received, bias ...comm.Buffer) error {
	t, err := x.CheckCombine(out, y, r, bias)
	if err != nil {
		return err
	}
	if err := x.hands.begin(s, "combine"); err != nil {
		if !errors.Is(err, comm.Unavailable) {
			t.Release()
		}
		return err
	}
	defer t.Release()
	return x.comeBack(s, x.banks[t.Number], t)
}

func (x *Exchange) comeBack(s comm.Stream, b *bank, t exchange.Taken) error {
	list, h := &b.lists.back, &b.hops
	inSend, inRecv, outSend, outRecv := h.backSend, h.backRecv, h.outRecv, h.outSend
	home := sums{start: list[0], item: list[1]}
	var src comm.Buffer
	var err error
	switch {
	case x.Cfg.RankInvariant:
		n := &b.terms
		inSend, inRecv, outSend, outRecv = n.inSend, n.inRecv, n.outSend, n.outRecv
		home.weight = list[2]
		src, err = x.pack(s, &b.Out, t.Y, list[3])
	case x.Cfg.Output == ep.ExpertRows:
		if src, err = b.Out.Rows(x.Comm, len(b.order)); err == nil {
			err = x.hands.add(s, src, t.Y, sums{list[3], list[4], list[5]}, nil)
		}
	default:
		src, err = x.pack(s, &b.Out, t.Y, list[3])
	}
	if err != nil {
		return err
	}
	came, err := b.came.Rows(x.Comm, total(inRecv))
	if err != nil {
		return err
	}
	if err := x.leg(s, x.inside, comm.Part{Dst: came, Src: src}, inSend, inRecv, t.Tag); err != nil {
		return err
	}
	if err := x.hands.done(s, x.inside); err != nil {
		return err
	}
	joined, err := x.joined(s, b, came)
	if err != nil {
		return err
	}
	returned, err := b.returned.Rows(x.Comm, total(outRecv))
	if err != nil {
		return err
	}
	if err := x.leg(s, x.between, comm.Part{Dst: returned, Src: joined}, outSend, outRecv, t.Tag); err != nil {
		return err
	}
	return x.hands.add(s, t.Out.Slice(0, b.tokens), returned, home, t.Bias)
}

func total(counts []int) (n int) {
	for _, v := range counts {
		n += v
	}
	return n
}

// joined makes what this relay sends home: a sum for each row, or expert rows in the sources' order.
func (x *Exchange) joined(s comm.Stream, b *bank, came comm.Buffer) (comm.Buffer, error) {
	if x.Cfg.RankInvariant {
		return x.pack(s, b.sums, came, b.lists.back[4])
	}
	dst, err := b.sums.Rows(x.Comm, b.relayed[x.nodes])
	if err != nil {
		return dst, err
	}
	return dst, x.hands.add(s, dst, came, sums{start: b.lists.relay[2], item: b.lists.relay[3]}, nil)
}

// leg is an alltoallv of one tensor, tagged so that ranks that combine different results get an error.
func (x *Exchange) leg(s comm.Stream, c *comm.Comm, p comm.Part, send, recv []int, tag uint64) error {
	x.parts[0] = p
	x.op = comm.Op{Kind: comm.AllToAllV, Parts: x.parts[:1], Send: comm.Host(send), Recv: comm.Host(recv), Tag: tag}
	return c.Do(s, &x.op)
}
