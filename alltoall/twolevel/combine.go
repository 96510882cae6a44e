package twolevel

import (
	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/ep"
	"github.com/weftgo/weft/internal/kernels/exchange"
)

// terms is how expert rows travel back (RankInvariant), decided at Dispatch.
type terms struct {
	give []int32 // slots of the received rows in (row, k) order: what goes to the relays
	pass []int32 // rows that came to this relay, in the order in which they go to the sources: (relayed row, k)
	sum  exchange.Terms
	at   []int32 // [rows, topK]: scratch

	inSend, inRecv   [][]int // [nodes][ranks]: expert rows to and from the ranks of this node
	outSend, outRecv []int   // [nodes]: to and from the nodes
	given, came      []int   // [nodes+1]: first of each node
}

func newTerms(nodes, ranks int) terms {
	return terms{inSend: table(nodes, ranks), inRecv: table(nodes, ranks), outSend: make([]int, nodes), outRecv: make([]int, nodes),
		given: make([]int, nodes+1), came: make([]int, nodes+1)}
}

// prepareReturn decides which expert rows come back and in which order, from this dispatch's plans and index alone.
func (x *Exchange) prepareReturn(b *bank, batch exchange.Batch) {
	t, topK := &b.terms, x.Cfg.TopK
	t.give = t.give[:0]
	row := 0
	for n := range x.nodes {
		t.given[n] = len(t.give)
		for r, rows := range b.hops.inRecv[n] {
			before := len(t.give)
			t.give = appendUsed(t.give, b.Index.Slot[row*topK:(row+rows)*topK])
			t.inSend[n][r] = len(t.give) - before
			row += rows
		}
	}
	t.given[x.nodes] = len(t.give)
	t.relay(b, topK)
	t.home(b, batch, topK)
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
	home             exchange.Terms
}

func (x *Exchange) comeBack(s comm.Stream, b *bank, t exchange.Taken) error {
	l := back{inSend: b.hops.inRecv, inRecv: b.hops.inSend, outSend: b.hops.outRecv, outRecv: b.hops.outSend,
		given: b.received, came: b.copied, home: exchange.Terms{Start: b.out.tokenStart, Item: b.out.byToken}}
	src := t.Y
	var err error
	switch {
	case x.Cfg.RankInvariant:
		n := &b.terms
		l = back{n.inSend, n.inRecv, n.outSend, n.outRecv, n.given, n.came, n.sum}
		if src, err = x.pack(&b.Out, t.Y, n.give); err != nil {
			return err
		}
	case x.Cfg.Output == ep.ExpertRows:
		if src, err = b.Out.Rows(x.Comm, t.NumRows); err != nil {
			return err
		}
		x.Partials.Sum(src, t.Y, &b.Index, x.Cfg.TopK, x.Cfg.DType)
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
	sums, err := x.joined(b, came)
	if err != nil {
		return err
	}
	returned, err := b.returned.Rows(x.Comm, len(l.home.Item))
	if err != nil {
		return err
	}
	if err := x.leg(s, x.between, comm.Part{Dst: returned, Src: sums}, l.outSend, l.outRecv, t.Tag); err != nil {
		return err
	}
	x.Sums.Sum(t.Out, returned, l.home, t.Bias)
	return nil
}

// joined makes what this relay sends home: a sum for each row, or expert rows in the sources' order.
func (x *Exchange) joined(b *bank, came comm.Buffer) (comm.Buffer, error) {
	if x.Cfg.RankInvariant {
		return x.pack(b.sums, came, b.terms.pass)
	}
	sums, err := b.sums.Rows(x.Comm, b.relayed[x.nodes])
	if err == nil {
		x.Sums.Sum(sums, came, b.join, nil)
	}
	return sums, err
}

// leg is an alltoallv of one tensor, tagged so that ranks that combine different results get an error.
func (x *Exchange) leg(s comm.Stream, c *comm.Comm, p comm.Part, send, recv []int, tag uint64) error {
	x.parts[0] = p
	x.op = comm.Op{Kind: comm.AllToAllV, Parts: x.parts[:1], Send: comm.Host(send), Recv: comm.Host(recv), Tag: tag}
	return c.Do(s, &x.op)
}
