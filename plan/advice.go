package plan

import "fmt"

// Rule ids. They are stable; tests and reports name them.
const (
	RuleInFlightLow   = "in-flight-low"      // up to 128: tensor parallelism
	RuleInFlightGap   = "in-flight-gap"      // 129-255: the sources are silent
	RuleInFlightCross = "in-flight-cross"    // 256-511: the published crossover
	RuleInFlightHigh  = "in-flight-high"     // from 512: data parallelism
	RuleDensityLow    = "density-low"        // below 1 %: ep off
	RuleDensityGap    = "density-gap"        // 1-3 %: measure
	RuleDensityHigh   = "density-high"       // above 3 %: ep on
	RuleKVHeads       = "kv-heads"           // fewer KV heads than tp: the cache is replicated
	RuleKVLatent      = "kv-latent"          // one head: attention should be data parallel
	RuleKVRoom        = "kv-room"            // the workload's cache fits under tp
	RuleKVFull        = "kv-full"            // it does not
	RuleOneNode       = "fits-one-node"      // and prefill- or latency-bound: tp+ep, dp = 1
	RuleManyNodes     = "many-nodes"         // dp attention + ep all-to-all
	RuleTooBig        = "does-not-fit"       // one node is too small
	RuleFP8Slice      = "fp8-slice"          // slices that fp8 blocks cannot have
	RuleOverlap       = "two-batch-overlap"  // tokens per rank decide
	RuleBalance       = "balance-experts"    // redundant experts
	RuleLockstep      = "lockstep"           // the taxes of dp with ep
	RuleSparseSpread  = "fewer-than-experts" // more ranks than experts
)

// Advice is one rule that fired.
type Advice struct {
	Rule    string `json:"rule"`
	Says    string `json:"says"`    // tp, dp, ep-on, ep-off, measure, note
	Why     string `json:"why"`     // the numbers
	Measure string `json:"measure"` // how to decide, when the sources leave a gap
}

// Question is what the rules look at.
type Question struct {
	Model    Model
	Cluster  Cluster
	Workload Workload
	Tokens   int // of one forward over all ranks
}

// Verdict is a layout to try first, with the rules that decided.
type Verdict struct {
	Layout string   `json:"layout"`
	Why    []string `json:"rules"`
}

const measureLayouts = "run weft plan --sweep concurrency, then the same closed loop on both layouts at your in-flight requests " +
	"and half and twice of them; take the one with more requests per second"

// Advise returns every rule that fires, and the layout they lead to. It is a pure function of the question.
func Advise(q Question) ([]Advice, Verdict) {
	a := []Advice{inFlight(q.Workload.InFlight), density(q.Model)}
	a = append(a, kvRules(q)...)
	a = append(a, sizeRules(q)...)
	tp := q.Cluster.GPUs()
	if m := q.Model; m.ExpertFormat == FP8 && (m.ExpertIntermediate%tp != 0 || m.ExpertIntermediate/tp%block != 0) {
		a = append(a, Advice{RuleFP8Slice, "ep-on", fmt.Sprintf("an expert's %d columns over %d ranks are slices of %g; fp8 scales cover "+
			"blocks of %d, so whole experts are needed", m.ExpertIntermediate, tp, float64(m.ExpertIntermediate)/float64(tp), block), ""})
	}
	a = append(a, overlapRule(q.Tokens, q.Cluster.GPUs()))
	return a, decide(q, a)
}

func inFlight(n int) Advice {
	switch {
	case n <= 128:
		return Advice{RuleInFlightLow, "tp", fmt.Sprintf("%d requests in flight (128 or fewer): every GPU on every token gives the lowest "+
			"latency; AMD measured 40-86 %% more throughput for tp than dp here", n), ""}
	case n < 256:
		return Advice{RuleInFlightGap, "measure", fmt.Sprintf("%d requests in flight lie between the published ranges (128 and 256)", n),
			measureLayouts}
	case n < 512:
		return Advice{RuleInFlightCross, "measure", fmt.Sprintf("%d requests in flight lie in the published crossover, 256 to 512", n),
			measureLayouts}
	}
	return Advice{RuleInFlightHigh, "dp", fmt.Sprintf("%d requests in flight (512 or more): replicas' caches and throughput win; AMD "+
		"measured 16-47 %% more for dp", n), ""}
}

func density(m Model) Advice {
	d := 100 * m.Density()
	switch {
	case d < 1:
		return Advice{RuleDensityLow, "ep-off", fmt.Sprintf("a token uses %d of %d experts, %.2f %% (below 1 %%): the exchange costs more "+
			"than it saves; Llama-4-Maverick ran 7-12 %% faster with ep off", m.TopK, m.Experts, d), ""}
	case d <= 3:
		return Advice{RuleDensityGap, "measure", fmt.Sprintf("a token uses %d of %d experts, %.2f %%: the sources say nothing between 1 and "+
			"3 %%", m.TopK, m.Experts, d), "run both layouts, ep on and off, at your batch size; compare time per forward"}
	}
	return Advice{RuleDensityHigh, "ep-on", fmt.Sprintf("a token uses %d of %d experts, %.2f %% (above 3 %%): whole experts give larger "+
		"products", m.TopK, m.Experts, d), ""}
}

func kvRules(q Question) []Advice {
	m, tp := q.Model, q.Cluster.GPUs()
	var a []Advice
	heads := m.KVHeads()
	gain := float64(tp) * float64(m.KVBytesPerToken(tp, m.Layers)) / float64(m.KVBytesPerToken(1, m.Layers))
	switch {
	case heads == 1 && tp > 1:
		a = append(a, Advice{RuleKVLatent, "dp", fmt.Sprintf("one latent KV head cannot be split: tp%d keeps %d copies of the cache; dp "+
			"attention holds %.0fx the requests", tp, tp, gain), ""})
	case heads < tp:
		a = append(a, Advice{RuleKVHeads, "note", fmt.Sprintf("%d KV heads on tp%d: each is held by %d ranks; dp attention would hold %.0fx "+
			"the tokens in equal memory (not %dx); tp%d with dp%d replicates nothing", heads, tp, tp/heads, gain, tp, heads, tp/heads), ""})
	}
	l := Layout{TP: tp, DP: 1, PP: 1, EP: true}
	if l.Check(m) != nil {
		return a
	}
	w := q.Workload
	mem := MemoryOf(m, q.Cluster, l, q.Tokens, w.MaxPrompt+w.Output)
	need := int64(w.InFlight) * int64(w.Prompt+w.Output)
	if mem.Fits && mem.KVTokensAll >= need {
		return append(a, Advice{RuleKVRoom, "tp", fmt.Sprintf("%d requests of %d tokens are %d; %s holds %d", w.InFlight,
			w.Prompt+w.Output, need, l, mem.KVTokensAll), ""})
	}
	return append(a, Advice{RuleKVFull, "dp", fmt.Sprintf("%d requests of %d tokens are %d; %s holds %d, so requests would queue or be "+
		"recomputed", w.InFlight, w.Prompt+w.Output, need, l, mem.KVTokensAll), ""})
}

func sizeRules(q Question) []Advice {
	c, m, w := q.Cluster, q.Model, q.Workload
	if c.Nodes > 1 {
		a := []Advice{{RuleManyNodes, "dp", fmt.Sprintf("%d nodes: an all-reduce per block would cross the network; dp attention with an "+
			"all-to-all moves only routed rows, hierarchically", c.Nodes), ""}, lockstepAdvice(), balanceAdvice()}
		if c.GPUs() > m.Experts {
			a = append(a, Advice{RuleSparseSpread, "note", fmt.Sprintf("%d ranks for %d experts: %d ranks hold copies of hot experts",
				c.GPUs(), m.Experts, c.GPUs()-m.Experts), ""})
		}
		return a
	}
	l := Layout{TP: c.GPUs(), DP: 1, PP: 1, EP: true}
	mem := MemoryOf(m, c, l, min(q.Tokens, 2048), w.MaxPrompt+w.Output)
	if !mem.Fits {
		return []Advice{{RuleTooBig, "note", mem.Refusal, ""}}
	}
	if c.GPUs() <= 8 && w.Kind() == "prefill-bound" || w.InFlight <= 128 {
		return []Advice{{RuleOneNode, "tp", fmt.Sprintf("%.1f of %.1f usable GiB per GPU on one node and a %s workload: tp+ep with dp = 1 "+
			"needs no exchange and no lockstep", gib(mem.Weights), gib(mem.Usable), w.Kind()), ""}}
	}
	if w.Kind() == "decode-heavy" {
		return []Advice{lockstepAdvice(), balanceAdvice()}
	}
	return nil
}

func lockstepAdvice() Advice {
	return Advice{RuleLockstep, "note", "dp ranks with ep move together: sizes are agreed before each forward, idle ranks run empty ones, " +
		"everyone waits for the fullest", ""}
}

func balanceAdvice() Advice {
	return Advice{RuleBalance, "note", "redundant copies of hot experts: SGLang measured 1.49x prefill and 2.54x decode",
		"compare max/mean of routed tokens per rank with and without them (weft plan --zipf --redundant)"}
}

// overlapRule follows SGLang's measurements of two-batch overlap: -27 % at 32 tokens per rank, break-even at 64 to 128.
func overlapRule(tokens, ranks int) Advice {
	per := tokens / ranks
	switch {
	case per < 64:
		return Advice{RuleOverlap, "note", fmt.Sprintf("%d tokens per rank: two-batch overlap loses (27 %% at 32 tokens per rank)", per), ""}
	case per <= 128:
		return Advice{RuleOverlap, "measure", fmt.Sprintf("%d tokens per rank: two-batch overlap breaks even between 64 and 128", per),
			"run with and without it at your batch size"}
	}
	return Advice{RuleOverlap, "note", fmt.Sprintf("%d tokens per rank: two-batch overlap pays where an exchange is used (27-35 %% of prefill)",
		per), ""}
}

func fired(as []Advice, rule string) bool {
	for _, a := range as {
		if a.Rule == rule {
			return true
		}
	}
	return false
}

// decide turns the rules into one layout: size first, then what overrides (latent KV, a full cache, sparse routing), then
// concurrency.
func decide(q Question, as []Advice) Verdict {
	g := q.Cluster.GPUs()
	var v Verdict
	l := Layout{TP: g, DP: 1, PP: 1, EP: true, Backend: AllToAll}
	use := func(rule string) bool {
		if fired(as, rule) {
			v.Why = append(v.Why, rule)
			return true
		}
		return false
	}
	if use(RuleTooBig) {
		return v
	}
	dp := use(RuleManyNodes) || use(RuleKVFull)
	if !dp && use(RuleInFlightHigh) {
		dp = true
	}
	if !dp && !use(RuleOneNode) && use(RuleKVLatent) {
		dp = true
	}
	if !dp {
		use(RuleInFlightLow)
		use(RuleKVRoom)
	}
	if dp && g > 1 {
		l.TP, l.DP = 1, g
		if q.Cluster.Nodes == 1 {
			l.Backend = AgRs // within a node the gather costs little more and needs no routing first
		}
	}
	if use(RuleDensityLow) && !fired(as, RuleFP8Slice) && q.Cluster.Nodes == 1 {
		l.EP = false
	} else {
		use(RuleDensityHigh)
	}
	use(RuleFP8Slice)
	for l.TP%2 == 0 && l.Check(q.Model) != nil { // tp does not divide: give the rest to dp
		l.TP, l.DP = l.TP/2, l.DP*2
	}
	fits := func(l Layout) bool {
		return MemoryOf(q.Model, q.Cluster, l, max(1, q.Tokens/l.DP), q.Workload.MaxPrompt+q.Workload.Output).Fits
	}
	for l.DP%2 == 0 && !fits(l) { // replicated attention weights are too much: split them
		next := l
		next.TP, next.DP = l.TP*2, l.DP/2
		if next.Check(q.Model) != nil {
			break
		}
		l = next
	}
	v.Layout = l.String()
	return v
}
