package twolevel

import (
	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/ep"
	"github.com/weftgo/weft/internal/kernels/exchange"
)

// terms is how expert rows become partial rows or (RankInvariant) travel back, decided at Dispatch.
type terms struct {
	give []int32 // slots of the received rows in (row, k) order: what goes to the relays
	pass []int32 // rows that came to this relay, in the order in which they go to the sources: (relayed row, k)
	sum  exchange.Terms
	part exchange.Terms // of a rank's partial rows, else
	at   []int32        // [rows, topK]: scratch

	inSend, inRecv   [][]int // [nodes][ranks]: expert rows to and from the ranks of this node
	outSend, outRecv []int   // [nodes]: to and from the nodes
	given, came      []int   // [nodes+1]: first of each node
}

func newTerms(nodes, ranks int) terms {
	return terms{inSend: table(nodes, ranks), inRecv: table(nodes, ranks), outSend: make([]int, nodes), outRecv: make([]int, nodes),
		given: make([]int, nodes+1), came: make([]int, nodes+1)}
}

// prepareReturn decides what comes back and in which order, from this dispatch's plans and index alone.
func (x *Exchange) prepareReturn(s comm.Stream, b *bank, batch exchange.Batch) error {
	t, topK := &b.terms, x.Cfg.TopK
	to := b.lists.back[:]
	switch {
	case x.Cfg.RankInvariant:
		t.pack(b, topK)
		t.relay(b, topK)
		t.home(b, batch, topK)
		return x.hands.give(s, b, backBox, to, t.sum.Start, t.sum.Item, words(t.sum.Weight), t.give, t.pass)
	case x.Cfg.Output == ep.ExpertRows:
		t.partial(b, topK)
		return x.hands.give(s, b, backBox, to, b.out.tokenStart, b.out.byToken, nil, t.part.Start, t.part.Item, words(t.part.Weight))
	}
	return x.hands.give(s, b, backBox, to, b.out.tokenStart, b.out.byToken)
}

// partial lists the slots of each received row in k order.
func (t *terms) partial(b *bank, topK int) {
	p := &t.part
	p.Start, p.Item, p.Weight = append(p.Start[:0], 0), p.Item[:0], p.Weight[:0]
	for i := 0; i < len(b.Index.Slot); i += topK {
		for _, slot := range b.Index.Slot[i : i+topK] {
			if slot >= 0 {
				p.Item, p.Weight = append(p.Item, slot), append(p.Weight, b.Index.Weight[slot])
			}
		}
		p.Start = append(p.Start, int32(len(p.Item)))
	}
}

// pack lists the slots of the received rows as they go to the relays.
func (t *terms) pack(b *bank, topK int) {
	t.give = t.give[:0]
	row, nodes := 0, len(b.send)
	for n := range nodes {
		t.given[n] = len(t.give)
		for r, rows := range b.hops.inRecv[n] {
			before := len(t.give)
			t.give = appendUsed(t.give, b.Index.Slot[row*topK:(row+rows)*topK])
			t.inSend[n][r] = len(t.give) - before
			row += rows
		}
	}
	t.given[nodes] = len(t.give)
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
	next := int32(0)
	for n, p := range b.send {
		t.came[n] = int(next)
		for r := range t.inRecv[n] {
			first := next
			for c := int(p.Start[r]); c < int(p.Start[r+1]); c++ {
				next = number(t.at[(b.relayed[n]+int(p.Tokens[c]))*topK:], p.Locals[c*topK:(c+1)*topK], next)
			}
			t.inRecv[n][r] = int(next - first)
		}
		t.outSend[n] = int(next) - t.came[n]
	}
	t.came[nodes] = int(next)
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
	b := x.banks[t.Number]
	err = x.comeBack(s, b, t)
	t.Release()
	return err
}

// back is the legs of a Combine.
type back struct {
	inSend, inRecv   [][]int
	outSend, outRecv []int
	given, came      []int // first row of each node, of what goes to the relays and of what comes to this one
}

func (x *Exchange) comeBack(s comm.Stream, b *bank, t exchange.Taken) error {
	list := &b.lists.back
	l := back{b.hops.inRecv, b.hops.inSend, b.hops.outRecv, b.hops.outSend, b.received, b.copied}
	home := sums{start: list[0], item: list[1]}
	src := t.Y
	var err error
	switch {
	case x.Cfg.RankInvariant:
		n := &b.terms
		l = back{n.inSend, n.inRecv, n.outSend, n.outRecv, n.given, n.came}
		home.weight = list[2]
		src, err = x.pack(s, &b.Out, t.Y, list[3])
	case x.Cfg.Output == ep.ExpertRows:
		if src, err = b.Out.Rows(x.Comm, b.received[x.nodes]); err == nil {
			err = x.hands.add(s, src, t.Y, sums{list[3], list[4], list[5]}, nil)
		}
	}
	if err != nil {
		return err
	}
	came, err := b.came.Rows(x.Comm, l.came[x.nodes])
	if err != nil {
		return err
	}
	for n := range x.nodes {
		p := comm.Part{Dst: came.Slice(l.came[n], l.came[n+1]), Src: src.Slice(l.given[n], l.given[n+1])}
		if err := x.leg(s, x.inside, p, l.inSend[n], l.inRecv[n], t.Tag); err != nil {
			return err
		}
	}
	joined, err := x.joined(s, b, came)
	if err != nil {
		return err
	}
	returned, err := b.returned.Rows(x.Comm, home.item.Rows())
	if err != nil {
		return err
	}
	if err := x.leg(s, x.between, comm.Part{Dst: returned, Src: joined}, l.outSend, l.outRecv, t.Tag); err != nil {
		return err
	}
	return x.hands.add(s, t.Out.Slice(0, b.tokens), returned, home, t.Bias)
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
