package plan

import "math"

// Serving is the predicted steady state of a closed loop.
type Serving struct {
	InFlight   int     `json:"in_flight"`
	Effective  int     `json:"effective_in_flight"` // after the KV cache's limit
	Tokens     int     `json:"tokens_per_forward"`
	ForwardMS  float64 `json:"forward_ms"`
	Requests   float64 `json:"requests_per_s"`
	OutTokens  float64 `json:"output_tokens_per_s"`
	CommShare  float64 `json:"comm_share"`
	KVLimited  bool    `json:"kv_limited"`
	BudgetHit  bool    `json:"budget_limited"`
	Refused    bool    `json:"refused"`
	PerForward Timing  `json:"timing"`
}

// Serve predicts the steady state of inFlight requests in a closed loop. Every forward each of them gets one output token or
// a part of its prompt, so a forward has inFlight x (uncached prompt + output)/output tokens unless the budget cuts it; requests per
// second follow from tokens per forward and its time. budget is per replica.
func Serve(m Model, c Cluster, l Layout, w Workload, inFlight, budget int, o Options) Serving {
	s := Serving{InFlight: inFlight, Effective: inFlight}
	mem := MemoryOf(m, c, l, budget, w.MaxPrompt+w.Output)
	if !mem.Fits {
		s.Refused, s.Effective = true, 0
		return s
	}
	if limit := int(mem.KVTokensAll / int64(w.Prompt+w.Output)); limit < inFlight {
		s.Effective, s.KVLimited = max(limit, 1), true
	}
	per := w.computed()
	tokens := float64(s.Effective) * per / float64(w.Output)
	all := float64(budget) * float64(l.DP)
	if tokens > all {
		tokens, s.BudgetHit = all, true
	}
	s.Tokens = int(math.Max(1, math.Round(tokens)))
	decode := int(math.Round(tokens * float64(w.Output) / per))
	b := Batch{Prefill: s.Tokens - decode, Decode: decode, Context: w.Prompt + w.Output/2,
		Lump: max(1, min(int(per)-w.Output, budget))}
	if s.BudgetHit { // every rank has a backlog and fills its budget
		b.Lump = 0
	}
	s.PerForward = Forward(m, c, l, b, o)
	s.ForwardMS, s.CommShare = s.PerForward.Total, s.PerForward.CommShare()
	s.Requests = float64(s.Tokens) / per / s.ForwardMS * 1e3
	s.OutTokens = s.Requests * float64(w.Output)
	return s
}
