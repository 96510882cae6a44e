package plan

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// Backend says how ranks exchange tokens when they must.
type Backend string

// The backends.
const (
	AgRs     Backend = "agrs"     // all_gatherv, local experts on all tokens, reduce_scatterv
	AllToAll Backend = "alltoall" // each token only to the ranks of its experts
)

// A Layout says how GPUs share a model: PP stages of DP x TP ranks.
type Layout struct {
	TP, DP, PP int
	EP         bool // whole experts spread over all DP x TP ranks; else every expert sliced over them
	Backend    Backend
	// Replicas makes DP separate servers that share nothing, each with a whole model, instead of ranks of one server.
	Replicas bool
}

// UseExchange is the gate: tokens are dispatched and combined only when data-parallel ranks share whole experts.
func (l Layout) UseExchange() bool { return l.DP > 1 && l.EP && !l.Replicas }

// Ranks returns the ranks of one pipeline stage.
func (l Layout) Ranks() int { return l.TP * l.DP }

// GPUs returns the GPUs of the layout.
func (l Layout) GPUs() int { return l.TP * l.DP * l.PP }

// ExpertRanks returns the ranks over which a layer's experts are spread or sliced.
func (l Layout) ExpertRanks() int {
	if l.Replicas {
		return l.TP
	}
	return l.Ranks()
}

// String returns tp8, tp8+ep8, dp2tp4+ep8:agrs, dp8, dp8:replicas, tp4pp2.
func (l Layout) String() string {
	s := ""
	if l.DP > 1 {
		s = fmt.Sprintf("dp%d", l.DP)
	}
	if l.TP > 1 || l.DP == 1 {
		s += fmt.Sprintf("tp%d", l.TP)
	}
	if l.PP > 1 {
		s += fmt.Sprintf("pp%d", l.PP)
	}
	if l.EP {
		s += fmt.Sprintf("+ep%d", l.ExpertRanks())
	}
	if l.UseExchange() {
		s += ":" + string(l.Backend)
	}
	if l.Replicas {
		s += ":replicas"
	}
	return s
}

var layoutWords = regexp.MustCompile(`^(?:dp(\d+))?(?:tp(\d+))?(?:pp(\d+))?(?:\+ep(\d*))?(?::(agrs|alltoall|replicas))?$`)

// ParseLayout reads what String writes. The backend is agrs unless said.
func ParseLayout(s string) (Layout, error) {
	bad := func(why string) (Layout, error) {
		return Layout{}, fmt.Errorf("plan: layout %q: %s; write tp8, tp8+ep8, dp2tp4+ep8:alltoall, dp8+ep8:agrs, dp8, tp4pp2, dp8:replicas",
			s, why)
	}
	g := layoutWords.FindStringSubmatch(strings.ToLower(s))
	if g == nil || g[1]+g[2]+g[3] == "" {
		return bad("not understood")
	}
	num := func(t string) int {
		if t == "" {
			return 1
		}
		n, _ := strconv.Atoi(t)
		return n
	}
	l := Layout{DP: num(g[1]), TP: num(g[2]), PP: num(g[3]), EP: strings.Contains(strings.ToLower(s), "+ep"), Backend: AgRs}
	switch g[5] {
	case "alltoall":
		l.Backend = AllToAll
	case "replicas":
		l.Replicas = true
	}
	if (g[5] == "agrs" || g[5] == "alltoall") && !l.UseExchange() {
		return bad("an exchange needs dp > 1 and ep")
	}
	if l.Replicas && l.DP == 1 {
		return bad("replicas need dp > 1")
	}
	if l.TP*l.DP*l.PP <= 0 || l.TP > 4096 || l.DP > 4096 || l.PP > 4096 {
		return bad("sizes must be 1 to 4096")
	}
	if g[4] != "" && num(g[4]) != l.ExpertRanks() {
		return bad(fmt.Sprintf("experts are spread over dp x tp = %d ranks", l.ExpertRanks()))
	}
	return l, nil
}

// Check returns an error if the model cannot be split so, with the number that does not divide.
func (l Layout) Check(m Model) error {
	if l.TP < 1 || l.DP < 1 || l.PP < 1 {
		return fmt.Errorf("plan: layout has tp %d, dp %d, pp %d; each must be at least 1", l.TP, l.DP, l.PP)
	}
	a := m.Attention
	if a.Heads%l.TP != 0 {
		return fmt.Errorf("plan: %s: tp %d does not divide the %d attention heads of %s", l, l.TP, a.Heads, m.Name)
	}
	if a.Kind == GQA && a.KVHeads%l.TP != 0 && l.TP%a.KVHeads != 0 {
		return fmt.Errorf("plan: %s: tp %d and the %d key/value heads of %s: one must divide the other", l, l.TP, a.KVHeads, m.Name)
	}
	if m.SharedIntermediate%l.TP != 0 || m.DenseIntermediate%l.TP != 0 {
		return fmt.Errorf("plan: %s: tp %d does not divide the intermediate sizes %d (shared) and %d (dense) of %s", l, l.TP,
			m.SharedIntermediate, m.DenseIntermediate, m.Name)
	}
	if l.PP > m.Layers {
		return fmt.Errorf("plan: %s: %d stages for %d layers", l, l.PP, m.Layers)
	}
	p := l.ExpertRanks()
	if !l.EP && m.ExpertIntermediate%p != 0 {
		return fmt.Errorf("plan: %s: experts of intermediate size %d do not slice over %d ranks; use ep", l, m.ExpertIntermediate, p)
	}
	if !l.EP && m.ExpertFormat == FP8 && m.ExpertIntermediate/p%block != 0 {
		return fmt.Errorf("plan: %s: a slice of %d of an expert is not a multiple of the %d-blocks of fp8 weights; use ep", l,
			m.ExpertIntermediate/p, block)
	}
	return nil
}

// StandardLayouts returns the rows of the comparison for gpus GPUs: tp; tp+ep; the mixes of dp and tp with ep; dp+ep by
// agrs and by all-to-all; dp without ep; separate replicas; a pipeline of two.
func StandardLayouts(m Model, gpus int) []Layout {
	ls := []Layout{{TP: gpus, DP: 1, PP: 1}, {TP: gpus, DP: 1, PP: 1, EP: true}}
	backend := AgRs
	if gpus > 16 {
		backend = AllToAll
	}
	if gpus > 1 {
		for tp := 16; tp > 1; tp /= 2 {
			if tp < gpus && gpus%tp == 0 {
				ls = append(ls, Layout{TP: tp, DP: gpus / tp, PP: 1, EP: true, Backend: backend})
			}
		}
		ls = append(ls, Layout{TP: 1, DP: gpus, PP: 1, EP: true, Backend: AgRs},
			Layout{TP: 1, DP: gpus, PP: 1, EP: true, Backend: AllToAll},
			Layout{TP: 1, DP: gpus, PP: 1}, Layout{TP: 1, DP: gpus, PP: 1, Replicas: true})
		if gpus%2 == 0 {
			ls = append(ls, Layout{TP: gpus / 2, DP: 1, PP: 2, EP: true})
		}
	}
	out := ls[:0]
	for _, l := range ls {
		if l.Check(m) == nil {
			out = append(out, l)
		}
	}
	return out
}
