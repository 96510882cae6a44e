package plan

import (
	"fmt"
	"sort"
)

// FloorBytes is the literature's weights per GPU: rest/TP + routed/EP, everything divided exactly, nothing replicated.
func FloorBytes(m Model, l Layout) float64 {
	var rest, routed float64
	for _, t := range m.Tensors() {
		if t.Part == PartExperts {
			routed += float64(t.Bytes())
		} else {
			rest += float64(t.Bytes())
		}
	}
	return (rest/float64(l.TP) + routed/float64(l.ExpertRanks())) / float64(l.PP)
}

// RankBytes returns the bytes of weights that the fullest rank holds: KV heads replicated when tp exceeds them, norms and
// routers replicated, vocabulary and experts rounded up, the fullest pipeline stage.
func RankBytes(m Model, l Layout) int64 {
	var layers, embed, head int64
	for _, t := range m.Tensors() {
		b := rankTensorBytes(m, l, t)
		switch t.Part {
		case PartEmbedding:
			embed += b
		case PartHead:
			head += b
		default:
			layers += b
		}
	}
	if m.Tied && l.PP > 1 {
		head = embed
	}
	if l.PP > 1 {
		return layers + max(embed, head)
	}
	return layers + embed + head
}

func rankTensorBytes(m Model, l Layout, t Tensor) int64 {
	rows, cols, each := int64(t.Rows), int64(t.Cols), int64(t.Each)
	dim := &rows
	if t.SplitCols {
		dim = &cols
	}
	tp, ranks := int64(l.TP), int64(l.ExpertRanks())
	switch t.Shard {
	case ByHeads, BySize, ByVocab:
		*dim = ceil(*dim, tp)
	case ByKVHeads:
		heads := int64(m.Attention.KVHeads)
		*dim = *dim / heads * max(1, heads/tp)
	case ByExperts:
		if l.EP {
			each = each / int64(m.Experts) * ceil(int64(m.Experts), ranks)
		} else if t.Name == "experts down bias" {
			break // every rank holds it, one adds it
		} else {
			*dim = ceil(*dim, ranks)
		}
	}
	layers := int64(1)
	if t.Layers > 0 {
		layers = ceil(int64(t.Layers), int64(l.PP))
	}
	return layers * each * t.Format.Bytes(rows, cols)
}

// A Term is one item of a GPU's memory.
type Term struct {
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"`
	How   string `json:"how"`
}

// Memory is what one GPU holds.
type Memory struct {
	Usable      int64   `json:"usable_bytes"`
	Weights     int64   `json:"weight_bytes"`       // of the fullest rank
	Floor       float64 `json:"weight_floor_bytes"` // rest/TP + routed/EP
	Terms       []Term  `json:"terms"`              // everything but weights and KV cache
	Budget      int     `json:"token_budget"`       // tokens a replica takes in one forward
	KVPerToken  int64   `json:"kv_bytes_per_token"` // on one GPU
	Free        int64   `json:"free_bytes"`         // left for the KV cache
	KVTokens    int64   `json:"kv_tokens"`          // capacity of one replica
	KVTokensAll int64   `json:"kv_tokens_all"`      // of all replicas
	NeedTokens  int     `json:"need_tokens"`        // the longest request
	Fits        bool    `json:"fits"`
	MaxBudget   int     `json:"max_token_budget"` // largest budget that still fits; 0: none does
	Refusal     string  `json:"refusal,omitempty"`
}

// MemoryOf predicts a GPU's memory. budget is the most tokens that one replica (one dp rank) takes in one forward, length the
// longest request, which the KV cache must be able to hold. A layout that cannot fit has a Refusal with the numbers and the
// largest budget that would fit.
func MemoryOf(m Model, c Cluster, l Layout, budget, length int) Memory {
	mem := Memory{Usable: c.UsableBytes(), Weights: RankBytes(m, l), Floor: FloorBytes(m, l), Budget: budget, NeedTokens: length,
		KVPerToken: m.KVBytesPerToken(l.TP, stageLayers(m, l))}
	mem.Terms = memoryTerms(m, c, l, budget)
	mem.Free = mem.Usable - mem.Weights - sum(mem.Terms)
	need := stageKV(m, l, length)
	mem.Fits = mem.Free >= need
	mem.KVTokens = kvCapacity(m, l, mem.Free, length)
	mem.KVTokensAll = mem.KVTokens * int64(l.DP)
	// Memory grows with the budget, so the largest one that fits is found by bisection.
	fits := func(b int) bool { return mem.Usable-mem.Weights-sum(memoryTerms(m, c, l, b)) >= need }
	mem.MaxBudget = sort.Search(1<<24, func(b int) bool { return !fits(b + 1) })
	if !mem.Fits {
		mem.Refusal = fmt.Sprintf("%s: %.2f GiB of weights and %.2f GiB for a budget of %d tokens leave %.2f of %.2f usable GiB; one "+
			"request of %d tokens needs %.2f GiB of KV cache; ", l, gib(mem.Weights), gib(sum(mem.Terms)), budget, gib(mem.Free),
			gib(mem.Usable), length, gib(need))
		if mem.MaxBudget > 0 {
			mem.Refusal += fmt.Sprintf("lower the budget to at most %d tokens per replica", mem.MaxBudget)
		} else {
			mem.Refusal += "no budget fits: use more GPUs, more tp or ep, or smaller weights"
		}
	}
	return mem
}

func gib(b int64) float64 { return float64(b) / perGiB }

func sum(ts []Term) int64 {
	var n int64
	for _, t := range ts {
		n += t.Bytes
	}
	return n
}

func stageLayers(m Model, l Layout) int { return (m.Layers + l.PP - 1) / l.PP }

// stageKV returns the KV bytes of a request on one GPU of a stage.
func stageKV(m Model, l Layout, length int) int64 {
	return ceil(m.KVBytes(length, l.TP)*int64(stageLayers(m, l)), int64(m.Layers))
}

// kvCapacity returns how many tokens, in requests of length, fit in free bytes.
func kvCapacity(m Model, l Layout, free int64, length int) int64 {
	if free <= 0 {
		return 0
	}
	per := stageKV(m, l, length)
	return int64(float64(free) / float64(per) * float64(length))
}

// exchangeBytes is what an exchanger of package ep shares with its peers at worst (ep.Config.Bytes): tokens of its own, recv
// rows from all ranks, copies of each token sent.
func exchangeBytes(tokens, recv, hidden, copies, ids int64) int64 {
	send, row := tokens*copies, hidden*bf16Sz+4
	return (send+recv)*(row+ids) + tokens*row + (recv+send)*hidden*bf16Sz + (recv+tokens)*hidden*4
}

// memoryTerms lists what depends on the budget, and the runtime.
func memoryTerms(m Model, c Cluster, l Layout, budget int) []Term {
	n, h := int64(budget), int64(m.Hidden)
	a, tp := m.Attention, int64(l.TP)
	width := ceil(int64(a.Heads*a.HeadDim), tp)*2 + 2*int64(max(1, a.KVHeads/l.TP)*a.HeadDim)
	if a.Kind == MLA {
		width = ceil(int64(a.Heads*(2*a.NopeDim+2*a.RopeDim+2*a.VDim)), tp) + int64(a.KVRank+a.RopeDim+a.QRank)
	}
	seen, ranks := n, int64(l.ExpertRanks()) // rows that a rank's experts look at
	gathered := l.DP > 1 && !l.Replicas
	if gathered {
		seen = n * int64(l.DP)
	}
	slice := int64(m.ExpertIntermediate)
	if !l.EP {
		slice = ceil(slice, ranks)
	}
	chunk := seen
	if c.ExpertChunk > 0 {
		chunk = min(seen, int64(c.ExpertChunk))
	}
	rows := chunk * int64(m.TopK)
	terms := []Term{
		{"hidden states", 2 * n * h * bf16Sz, "[tokens, hidden] and the residual"},
		{"attention", n * width * bf16Sz, "q, k, v and output of this rank's heads"},
		{"experts", rows * (max(2*slice, h) + slice) * bf16Sz,
			fmt.Sprintf("gate/up and activation of %d tokens x %d experts at a time", chunk, m.TopK)},
	}
	if shared := ceil(int64(max(m.SharedIntermediate, m.DenseIntermediate)), tp); shared > 0 {
		terms = append(terms, Term{"dense and shared ffn", n * 3 * shared * bf16Sz, "gate, up and activation"})
	}
	ids := int64(m.TopK) * 8
	switch {
	case gathered && l.UseExchange() && l.Backend == AllToAll:
		terms = append(terms, Term{"exchange buffers", exchangeBytes(n, seen, h, int64(min(int(ranks), m.TopK)), ids),
			"at worst every token of every rank comes here: rows out and in, outputs back, f32 sums"})
	case gathered:
		terms = append(terms, Term{"gather peak", seen * (2*h*bf16Sz + ids), "all ranks' rows with weights and ids, and partial outputs"})
	case l.TP > 1:
		terms = append(terms, Term{"all-reduce buffer", n * h * bf16Sz, "registered input"})
	}
	return append(terms, Term{"logits", min(n, 1024) * ceil(int64(m.Vocab), tp) * 4, "f32, one row per request, at most 1024"},
		Term{"runtime", c.RuntimeBytes, "context, graphs, communicators, fragmentation: an assumption"})
}
