package twolevel

import (
	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/dtype"
	"github.com/weftgo/weft/internal/kernels/exchange"
	"github.com/weftgo/weft/routing"
)

// bank is what is kept with a result.
type bank struct {
	*exchange.Bank
	plan   *routing.Plan // this rank's rows, by rank
	out    outward       // the same, by node
	hops   hops
	send   []*routing.Plan // [nodes]: what this rank relays for the rank of its number in each node, by rank of this node
	tokens int             // of this rank's batch

	relayed  []int // [nodes+1]: first row relayed for each node's rank
	copied   []int // [nodes+1]: first row sent on for it
	received []int // [nodes+1]: first row received of each node

	q, qs                *exchange.Mem // this rank's rows and scales on an fp8 wire
	rows, scales         *exchange.Mem // packed by node: [numCopies, .]
	relayX, relayScales  *exchange.Mem // as they came: [relayed rows, .]
	relayMeta            *exchange.Mem // int32 [relayed rows, 2 topK]: codes, then weights
	onX, onScales        *exchange.Mem // packed by node and rank: [copied rows, .]
	meta                 *exchange.Mem // int32 [received rows, 2 topK]: local experts, then weights
	came, sums, returned *exchange.Mem // DType: from the ranks of this node; a row for each that was relayed; from the nodes

	sendMeta []int32        // [numCopies, 2 topK]
	codes    []int32        // [relayed rows, topK]
	token    []int32        // relayed row of each copy that is sent on
	onMeta   []int32        // [copied rows, 2 topK]
	first    []int32        // [ranks]: scratch
	order    []int32        // received rows as they go back: by rank of the node, source node, token
	join     exchange.Terms // of what came back, to a row for each that was relayed
	locals   []int32        // [received rows, topK]
	weights  []int32        // [received rows, topK]: the bits
	terms    terms
	lists    lists
	gpu      *gpuBank
}

// lists are a result's where rows are.
type lists struct {
	send  [2]comm.Buffer // sendBox: tokens, sendMeta
	relay [4]comm.Buffer // relayBox: token, onMeta, start and item of join
	back  [6]comm.Buffer // backBox: start, item, weight of home; start, item, weight of parts, or what is given and passed on
}

// hops are the rows of each leg: between this rank and the node's (out), and for each node between this rank and those of its
// own (in).
type hops struct {
	outSend, outRecv []int   // [nodes]
	inSend, inRecv   [][]int // [nodes][ranks]
	backSend         []int   // [ranks]: rows to each of its own node on the way back, those of all source nodes in order
	backRecv         []int   // [ranks]
}

func (x *Exchange) newBank(b *exchange.Bank) *bank {
	cfg := x.Cfg
	scale, scales := cfg.Scales()
	scales = max(scales, 1)
	tokens, k := cfg.MaxTokensPerRank, cfg.TopK
	copies, relay := tokens*min(x.nodes, k), x.relayRows()
	on := relay * min(x.ranks, k)
	came, sums, returned := on, relay, copies
	if cfg.RankInvariant {
		came, sums, returned = relay*k, relay*k, tokens*k
	}
	n := &bank{Bank: b, plan: x.Table.NewPlan(x.Comm.Rank()), out: newOutward(x.nodes, x.ranks, x.perRank, k),
		relayed: make([]int, x.nodes+1), copied: make([]int, x.nodes+1), received: make([]int, x.nodes+1),
		q: b.Own(cfg.Wire, cfg.Hidden, tokens), qs: b.Own(dtype.F32, scales, tokens),
		rows: b.Own(cfg.Wire, cfg.WireCols, copies), scales: b.Own(scale, scales, copies),
		relayX: b.Own(cfg.Wire, cfg.WireCols, relay), relayScales: b.Own(scale, scales, relay), relayMeta: b.Own(dtype.I32, 2*k, relay),
		onX: b.Own(cfg.Wire, cfg.WireCols, on), onScales: b.Own(scale, scales, on), meta: b.Own(dtype.I32, 2*k, cfg.MaxRecvRows),
		came: b.Own(cfg.DType, cfg.Hidden, came), sums: b.Own(cfg.DType, cfg.Hidden, sums), returned: b.Own(cfg.DType, cfg.Hidden, returned),
		terms: newTerms(x.nodes, x.ranks), first: make([]int32, x.ranks),
	}
	n.hops = hops{outSend: make([]int, x.nodes), outRecv: make([]int, x.nodes), inSend: table(x.nodes, x.ranks), inRecv: table(x.nodes, x.ranks),
		backSend: make([]int, x.ranks), backRecv: make([]int, x.ranks)}
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

// settled notes what this rank sends and receives in each leg, as the counts of all ranks say.
func (b *bank) settled(c *counts, node, local int) {
	me := node*c.ranks + local
	h := &b.hops
	clear(h.backSend)
	clear(h.backRecv)
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
			h.backSend[r] += h.inRecv[n][r]
			h.backRecv[r] += h.inSend[n][r]
		}
	}
	b.relayed[c.nodes], b.copied[c.nodes], b.received[c.nodes] = relayed, copied, received
}
