package twolevel

import (
	"github.com/weftgo/weft/dtype"
	"github.com/weftgo/weft/internal/kernels/exchange"
	"github.com/weftgo/weft/routing"
)

// bank is what is kept with a result.
type bank struct {
	*exchange.Bank
	plan *routing.Plan // this rank's rows, by rank
	out  outward       // the same, by node
	hops hops
	send []*routing.Plan // [nodes]: what this rank relays for the rank of its number in each node, by rank of this node

	relayed  []int // [nodes+1]: first row relayed for each node's rank
	copied   []int // [nodes+1]: first row sent on for it
	received []int // [nodes+1]: first row received of each node

	q, qs                *exchange.Mem // this rank's rows and scales on an fp8 wire
	rows, scales, topW   *exchange.Mem // packed by node: [numCopies, .]
	relayX, relayScales  *exchange.Mem // as they came: [relayed rows, .]
	codes, relayW        *exchange.Mem
	onX, onScales, onW   *exchange.Mem // packed by node and rank: [copied rows, .]
	came, sums, returned *exchange.Mem // DType: from the ranks of this node; a row for each that was relayed; from the nodes

	token  []int32        // relayed row of each copy that is sent on
	locals []int32        // [copied rows, topK]: experts of the ranks they go to
	join   exchange.Terms // of sums
	terms  terms          // RankInvariant
}

// hops are the rows of each leg: between this rank and the node's (out), and for each node between this rank and those of its
// own (in).
type hops struct {
	outSend, outRecv []int   // [nodes]
	inSend, inRecv   [][]int // [nodes][ranks]
}

func (x *Exchange) newBank(b *exchange.Bank) *bank {
	cfg := x.Cfg
	scale, scales := cfg.Scales()
	scales = max(scales, 1)
	tokens := cfg.MaxTokensPerRank
	copies, relay := tokens*min(x.nodes, cfg.TopK), x.relayRows()
	on := relay * min(x.ranks, cfg.TopK)
	came, sums, returned := on, relay, copies
	if cfg.RankInvariant {
		came, sums, returned = relay*cfg.TopK, relay*cfg.TopK, tokens*cfg.TopK
	}
	n := &bank{Bank: b, plan: x.Table.NewPlan(x.Comm.Rank()), out: newOutward(x.nodes, x.ranks, x.perRank, cfg.TopK),
		relayed: make([]int, x.nodes+1), copied: make([]int, x.nodes+1), received: make([]int, x.nodes+1),
		q: b.Own(cfg.Wire, cfg.Hidden, tokens), qs: b.Own(dtype.F32, scales, tokens),
		rows: b.Own(cfg.Wire, cfg.WireCols, copies), scales: b.Own(scale, scales, copies), topW: b.Own(dtype.F32, cfg.TopK, copies),
		relayX: b.Own(cfg.Wire, cfg.WireCols, relay), relayScales: b.Own(scale, scales, relay),
		codes: b.Own(dtype.I32, cfg.TopK, relay), relayW: b.Own(dtype.F32, cfg.TopK, relay),
		onX: b.Own(cfg.Wire, cfg.WireCols, on), onScales: b.Own(scale, scales, on), onW: b.Own(dtype.F32, cfg.TopK, on),
		came: b.Own(cfg.DType, cfg.Hidden, came), sums: b.Own(cfg.DType, cfg.Hidden, sums), returned: b.Own(cfg.DType, cfg.Hidden, returned),
		terms: newTerms(x.nodes, x.ranks),
	}
	n.hops = hops{outSend: make([]int, x.nodes), outRecv: make([]int, x.nodes), inSend: table(x.nodes, x.ranks), inRecv: table(x.nodes, x.ranks)}
	for range x.nodes {
		n.send = append(n.send, x.relayTable.NewPlan(0))
	}
	return n
}

func table(rows, cols int) [][]int {
	t := make([][]int, rows)
	for i := range t {
		t[i] = make([]int, cols)
	}
	return t
}

// take notes what this rank sends and receives in each leg, as the counts of all ranks say.
func (b *bank) take(c *counts, node, local int) {
	me := node*c.ranks + local
	h := &b.hops
	relayed, copied, received := 0, 0, 0
	for n := range c.nodes {
		b.relayed[n], b.copied[n], b.received[n] = relayed, copied, received
		src := n*c.ranks + local // whose rows this rank relays
		h.outSend[n], h.outRecv[n] = c.node(me, n), c.node(src, node)
		relayed += h.outRecv[n]
		for r := range c.ranks {
			h.inSend[n][r] = c.at(src, node*c.ranks+r)
			h.inRecv[n][r] = c.at(n*c.ranks+r, me)
			copied += h.inSend[n][r]
			received += h.inRecv[n][r]
		}
	}
	b.relayed[c.nodes], b.copied[c.nodes], b.received[c.nodes] = relayed, copied, received
}
