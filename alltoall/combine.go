package alltoall

import (
	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/ep"
	"github.com/weftgo/weft/internal/kernels/exchange"
)

// terms is what each token's output is the sum of, kept with the bank from Dispatch to Combine.
type terms struct {
	start, item []int32
	weight      []float32
	at          []int32 // [numTokens, topK]: scratch
	pack        []int32 // slots of the received rows in (row, k) order: what goes back (RankInvariant)
}

// prepareReturn decides what comes back and in which order, from this dispatch's plan and index alone.
func (x *host) prepareReturn(b *bank, batch exchange.Batch) {
	if x.Cfg.RankInvariant {
		x.packed(b)
		b.terms.returned(b, batch, x.Cfg.TopK)
	}
}

// packed lists the expert rows that go back.
func (x *host) packed(b *bank) {
	t := &b.terms
	topK := x.Cfg.TopK
	t.pack = t.pack[:0]
	row := 0
	for src, n := range b.recv {
		if x.Cfg.LowLatency {
			row = src * x.Cfg.MaxTokensPerRank
		}
		before := len(t.pack)
		for _, slot := range b.Index.Slot[row*topK : (row+n)*topK] {
			if slot >= 0 {
				t.pack = append(t.pack, slot)
			}
		}
		row += n
		b.back[src] = len(t.pack) - before
	}
}

// returned numbers the expert rows that come home: by destination, token and k, as the destinations pack them.
func (t *terms) returned(b *bank, batch exchange.Batch, topK int) {
	t.at = t.at[:0]
	for range batch.NumTokens * topK {
		t.at = append(t.at, -1)
	}
	next := int32(0)
	for d := range b.home {
		first := next
		for c := b.plan.Start[d]; c < b.plan.Start[d+1]; c++ {
			token := int(b.plan.Tokens[c])
			for k, local := range b.plan.Locals[int(c)*topK : int(c+1)*topK] {
				if local >= 0 {
					t.at[token*topK+k] = next
					next++
				}
			}
		}
		b.home[d] = int(next - first)
	}
	t.start, t.item, t.weight = append(t.start[:0], 0), t.item[:0], t.weight[:0]
	for token := range batch.NumTokens {
		for i := token * topK; i < (token+1)*topK; i++ {
			if t.at[i] >= 0 {
				t.item, t.weight = append(t.item, t.at[i]), append(t.weight, batch.Weights[i])
			}
		}
		t.start = append(t.start, int32(len(t.item)))
	}
}

func (x *host) combine(s comm.Stream, out, y comm.Buffer, r *ep.Received, bias []comm.Buffer) error {
	t, err := x.CheckCombine(out, y, r, bias)
	if err != nil {
		return err
	}
	defer t.Release()
	b := x.banks[t.Number]
	src := t.Y
	switch {
	case x.Cfg.RankInvariant:
		src, err = x.expertRows(b, t.Y)
	case x.Cfg.Output == ep.ExpertRows:
		if src, err = b.Out.Rows(x.Comm, t.NumRows); err == nil {
			x.Partials.Sum(src, t.Y, &b.Index, x.Cfg.TopK, x.Cfg.DType)
		}
	}
	if err != nil {
		return err
	}
	return x.bring(s, b, t, src)
}

// expertRows packs what goes back with RankInvariant.
func (x *host) expertRows(b *bank, y comm.Buffer) (comm.Buffer, error) {
	src, err := b.Out.Rows(x.Comm, len(b.terms.pack))
	if err == nil {
		x.Gatherer.Gather(src, y, b.terms.pack)
	}
	return src, err
}

// bring moves src back to the tokens' ranks and sums there.
func (x *host) bring(s comm.Stream, b *bank, t exchange.Taken, src comm.Buffer) error {
	send, recv := b.recv, b.send
	list := exchange.Terms{Start: b.plan.TokenStart, Item: b.plan.ByToken}
	if x.Cfg.RankInvariant {
		send, recv = b.back, b.home
		list = exchange.Terms{Start: b.terms.start, Item: b.terms.item, Weight: b.terms.weight}
	}
	returned, err := b.returned.Rows(x.Comm, len(list.Item))
	if err != nil {
		return err
	}
	x.parts[0] = comm.Part{Dst: returned, Src: src}
	x.op = comm.Op{Kind: comm.AllToAllV, Parts: x.parts[:1], Send: comm.Host(send), Recv: comm.Host(recv), Tag: t.Tag}
	err = x.Comm.Do(s, &x.op)
	if err == nil {
		x.Sums.Sum(t.Out, returned, list, t.Bias)
	}
	return err
}
