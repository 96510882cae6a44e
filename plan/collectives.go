package plan

// A Step is one collective of a layer, or of a forward.
type Step struct {
	Op       string  `json:"op"`
	Where    string  `json:"where"`     // attention, experts, dense ffn, embedding, head, stage boundary
	Ranks    int     `json:"ranks"`     // of its group
	PerLayer int     `json:"per_layer"` // 0: per forward
	Count    int     `json:"count"`     // per forward
	UnitsOfS float64 `json:"aggregate_in_s"`
	Why      string  `json:"why"`
}

// Steps says what a layout runs, step by step, and why. UnitsOfS are aggregate bytes over S of one such step, in the
// ring counting for reductions and in copies on the wire for an all-to-all (each half of it is one step).
func Steps(m Model, l Layout) []Step {
	var s []Step
	moe, dense := m.MoELayers(), m.DenseLayers
	tpFactor := AllReduceFactor(l.TP, "ring")
	add := func(op, where string, ranks, perLayer, layers int, units float64, why string) {
		if ranks > 1 && layers > 0 {
			s = append(s, Step{op, where, ranks, perLayer, perLayer * layers, units, why})
		}
	}
	if l.UseExchange() {
		add("reduce_scatterv", "attention", l.TP, 1, moe, tpFactor/2,
			"row-parallel o_proj leaves partial sums; each rank keeps its share of the rows, so that no token is dispatched twice")
		exchangeSteps(m, l, add)
		add("all_gatherv", "experts", l.TP, 1, moe, tpFactor/2, "inside the replica: the next attention needs all rows again")
		add("all_reduce", "attention, dense ffn", l.TP, 2, dense, tpFactor, "dense layers are plain tensor parallelism")
	} else {
		add("all_reduce", "attention", l.TP, 1, m.Layers, tpFactor, "row-parallel o_proj leaves partial sums")
		switch {
		case l.DP > 1 && !l.Replicas:
			p := l.Ranks()
			add("all_gatherv", "experts", p, 1, moe, float64(p-1),
				"every rank has rows of its own and a slice of every expert, so each slice needs all rows")
			add("reduce_scatterv", "experts", p, 1, moe, float64(p-1), "the slices' partial sums go back to the rows' owners")
		case l.EP:
			add("all_reduce", "experts", l.TP, 1, moe, tpFactor,
				"dp = 1: every rank has all rows and whole experts of its own; experts it does not own contribute zero")
		default:
			add("all_reduce", "experts", l.TP, 1, moe, tpFactor,
				"every rank has all rows and a slice of every expert; row-parallel down_proj leaves partial sums")
		}
		add("all_reduce", "dense ffn", l.TP, 1, dense, tpFactor, "row-parallel down_proj leaves partial sums")
	}
	if l.PP > 1 {
		s = append(s, Step{"send", "stage boundary", l.PP, 0, l.PP - 1, 1, "one hand-off of S to the next stage"})
	}
	return s
}

func exchangeSteps(m Model, l Layout, add func(op, where string, ranks, perLayer, layers int, units float64, why string)) {
	p, moe := l.Ranks(), m.MoELayers()
	if l.Backend == AllToAll {
		half := AllToAllFactor(p, m.Experts, m.TopK, "distinct-wire") / 2
		add("dispatch", "experts", p, 1, moe, half, "dp > 1 with ep: a token goes only to the ranks that own its experts")
		add("combine", "experts", p, 1, moe, half, "the experts' outputs go back and are summed at the token's rank")
		return
	}
	add("all_gatherv", "experts", p, 1, moe, float64(p-1), "dp > 1 with ep by agrs: every rank gets every token and runs its local experts")
	add("reduce_scatterv", "experts", p, 1, moe, float64(p-1), "partial outputs are summed and each rank gets its own tokens back")
}

// Summary names what a layout's experts run, in the words of the configuration table.
func Summary(l Layout) string {
	switch {
	case l.Replicas:
		return "independent replicas; all-reduce inside one when tp > 1"
	case l.UseExchange() && l.Backend == AllToAll:
		return "all-to-all: point-to-point dispatch + combine"
	case l.UseExchange():
		return "all-gather (dispatch) + reduce-scatter (combine)"
	case l.DP > 1:
		return "all-gather + reduce-scatter around sliced experts"
	case l.TP > 1:
		return "all-reduce"
	}
	return "none"
}

// layerFactors returns aggregate bytes over S of one MoE layer and of one dense layer under a counting; ok is false when the
// counting says nothing about the layout.
func layerFactors(m Model, l Layout, counting string) (moe, dense float64, ok bool) {
	reduction := counting == "ring" || counting == "in-switch" || counting == "in-switch-low"
	tp := 0.0
	if l.TP > 1 {
		tp = AllReduceFactor(l.TP, counting)
	}
	if !l.UseExchange() {
		if !reduction || l.DP > 1 && !l.Replicas && counting != "ring" {
			return 0, 0, false
		}
		if l.DP > 1 && !l.Replicas {
			return tp + AgRsFactor(l.Ranks()), 2 * tp, true
		}
		return 2 * tp, 2 * tp, true
	}
	ring := 0.0
	if l.TP > 1 {
		ring = AllReduceFactor(l.TP, "ring")
	}
	if l.Backend == AgRs {
		return ring + AgRsFactor(l.Ranks()), 2 * ring, counting == "ring"
	}
	return ring + AllToAllFactor(l.Ranks(), m.Experts, m.TopK, counting), 2 * ring, !reduction
}

// Traffic returns the bytes of one forward over tokens tokens (of all ranks together), in every counting that fits the
// layout. Embedding and head are left out, as in the literature. Activations are bf16.
func Traffic(m Model, l Layout, tokens int) []Volume {
	s := ActivationBytes(m, tokens)
	var out []Volume
	for _, c := range Countings {
		moe, dense, ok := layerFactors(m, l, c.ID)
		if !ok {
			continue
		}
		total := s * (moe*float64(m.MoELayers()) + dense*float64(m.DenseLayers) + HandOffFactor(l.PP))
		out = append(out, Volume{Counting: c.ID, Aggregate: total, PerGPU: total / float64(l.GPUs()), UnitsOfS: moe})
	}
	return out
}

// ActivationBytes returns S: the bytes of [tokens, hidden] in bf16.
func ActivationBytes(m Model, tokens int) float64 {
	return float64(tokens) * float64(m.Hidden) * bf16Sz
}
