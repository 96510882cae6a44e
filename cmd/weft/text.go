package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/weftgo/weft/plan"
)

const (
	mib = 1 << 20
	gib = 1 << 30
)

// printer writes lines and tables and remembers the first error.
type printer struct {
	w   io.Writer
	err error
}

func (p *printer) f(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format, args...)
	}
}

// table prints rows of cells in columns; the first row is the header.
func (p *printer) table(rows [][]string) {
	if p.err != nil {
		return
	}
	t := tabwriter.NewWriter(p.w, 0, 0, 2, ' ', 0)
	for _, r := range rows {
		fmt.Fprintln(t, "  "+strings.Join(r, "\t"))
	}
	p.err = t.Flush()
}

// printReport prints a plan as the article does: what runs, what it moves, what it keeps, then time and advice.
func printReport(w io.Writer, r *plan.Report) error {
	p := &printer{w: w}
	p.f("%s on %s (%.0f GB a GPU), %s\n", r.Model, r.Cluster.Name, float64(r.Cluster.MemoryBytes)/1e9, r.Workload.Note)
	unit, name := 1e9, "e9"
	weights := fmt.Sprintf("%.1f GiB", float64(r.WeightBytes)/gib)
	if r.Params.Total < 1e8 {
		unit, name = 1e6, "e6"
		weights = fmt.Sprintf("%.1f MiB", float64(r.WeightBytes)/mib)
	}
	count := func(n int64, digits int) string { return fmt.Sprintf("%.*f%s", digits, float64(n)/unit, name) }
	p.f("%s parameters, %s active (%s without the input embedding), %s of weights\n", count(r.Params.Total, 3),
		count(r.Params.Active, 2), count(r.Params.ActiveNoEmbedding, 2), weights)
	p.f("%d parameters an expert, %s routed, %s the rest\n", r.Params.PerExpert, count(r.Params.Routed, 3), count(r.Params.Rest, 3))
	p.f("S = %d tokens x hidden x 2 bytes = %.0f MiB; KV cache %.0f KiB a token, %.0f KiB on a tp%d rank\n\n", r.Tokens, r.S/mib,
		float64(r.KVPerTokenDP)/1024, float64(r.KVPerTokenTP)/1024, r.Cluster.GPUs())
	p.configurations(r)
	p.collectives(r)
	p.traffic(r)
	p.memory(r)
	p.times(r)
	p.advice(r)
	return p.err
}

func (p *printer) configurations(r *plan.Report) {
	p.f("What each layout's experts run\n")
	rows := [][]string{{"layout", "exchange", "MoE communication"}}
	for _, l := range r.Rows {
		rows = append(rows, []string{l.Layout, map[bool]string{true: "yes", false: "no"}[l.Exchange], l.Summary})
	}
	p.table(rows)
}

func (p *printer) collectives(r *plan.Report) {
	p.f("\nCollectives\n")
	rows := [][]string{{"layout", "collective", "where", "ranks", "per layer", "per forward", "why"}}
	for _, l := range r.Rows {
		for _, s := range l.Steps {
			per := "-"
			if s.PerLayer > 0 {
				per = fmt.Sprint(s.PerLayer)
			}
			rows = append(rows, []string{l.Layout, s.Op, s.Where, fmt.Sprint(s.Ranks), per, fmt.Sprint(s.Count), s.Why})
		}
	}
	p.table(rows)
}

func (p *printer) traffic(r *plan.Report) {
	p.f("\nBytes of one forward of %d tokens, in every counting\n", r.Tokens)
	rows := [][]string{{"layout", "counting", "S a layer", "GiB a GPU", "GiB in all"}}
	for _, l := range r.Rows {
		for _, v := range l.Traffic {
			rows = append(rows, []string{l.Layout, v.Counting, fmt.Sprintf("%.2f", v.UnitsOfS), fmt.Sprintf("%.2f", v.PerGPU/gib),
				fmt.Sprintf("%.1f", v.Aggregate/gib)})
		}
	}
	p.table(rows)
	for _, c := range plan.Countings {
		p.f("  %s: %s\n", c.ID, c.Text)
	}
	p.f("\nHand-offs of a pipeline:")
	for _, h := range r.HandOffs {
		p.f(" %s %.0f MiB", h.Counting, h.Aggregate/mib)
	}
	p.f("\nBubble of a pipeline with 8 micro-batches:")
	for _, n := range []int{2, 4, 8} {
		p.f(" pp%d %.1f %%", n, 100*plan.Bubble(n, 8))
	}
	p.f("\n\nRanks that a token reaches\n")
	rows = [][]string{{"ranks", "independent draws", "distinct experts", "of these on the wire"}}
	for _, f := range r.Fanouts {
		rows = append(rows, []string{fmt.Sprint(f.Ranks), fmt.Sprintf("%.3f", f.Independent), fmt.Sprintf("%.3f", f.Distinct),
			fmt.Sprintf("%.3f", f.OnTheWire)})
	}
	p.table(rows)
}

func (p *printer) memory(r *plan.Report) {
	p.f("\nMemory of a GPU (GiB), budget of %d tokens over all replicas\n", r.Tokens)
	rows := [][]string{{"layout", "weights: floor", "weights: fullest rank", "activations, buffers, runtime", "left for KV", "KV bytes a token",
		"KV tokens in all", "largest budget a replica"}}
	for _, l := range r.Rows {
		m := l.Memory
		var other int64
		for _, t := range m.Terms {
			other += t.Bytes
		}
		left := fmt.Sprintf("%.2f", float64(m.Free)/gib)
		if !m.Fits {
			left = "does not fit"
		}
		rows = append(rows, []string{l.Layout, fmt.Sprintf("%.2f", m.Floor/gib), fmt.Sprintf("%.2f", float64(m.Weights)/gib),
			fmt.Sprintf("%.2f", float64(other)/gib), left, fmt.Sprint(m.KVPerToken), fmt.Sprint(m.KVTokensAll), fmt.Sprint(m.MaxBudget)})
	}
	p.table(rows)
	for _, l := range r.Rows {
		if !l.Memory.Fits {
			p.f("  refused: %s\n", l.Memory.Refusal)
		}
	}
}

func (p *printer) times(r *plan.Report) {
	p.f("\nPredicted time of a forward of %d prompt tokens (ms), and of the workload\n", r.Tokens)
	rows := [][]string{{"layout", "attention", "experts", "communication", "hidden", "bubble", "total", "requests/s", "tokens a forward", "limits"}}
	for _, l := range r.Rows {
		if !l.Memory.Fits {
			continue
		}
		t, s := l.Forward, l.Serving
		limits := "-"
		switch {
		case s.KVLimited:
			limits = fmt.Sprintf("KV cache: %d in flight", s.Effective)
		case s.BudgetHit:
			limits = "token budget"
		}
		rows = append(rows, []string{l.Layout, ms(t.Attention), ms(t.Experts), ms(t.Comm), ms(t.Hidden), ms(t.Bubble), ms(t.Total),
			fmt.Sprintf("%.1f", s.Requests), fmt.Sprint(s.Tokens), limits})
	}
	p.table(rows)
	for _, a := range r.Assumptions {
		p.f("  assumed: %s\n", a)
	}
}

func ms(x float64) string { return fmt.Sprintf("%.1f", x) }

func (p *printer) advice(r *plan.Report) {
	p.f("\nAdvice\n")
	for _, a := range r.Advice {
		p.f("  [%s] %s: %s\n", a.Rule, a.Says, a.Why)
		if a.Measure != "" {
			p.f("      measure: %s\n", a.Measure)
		}
	}
	if r.Verdict.Layout != "" {
		p.f("Try first: %s (%s)\n", r.Verdict.Layout, strings.Join(r.Verdict.Why, ", "))
	} else {
		p.f("No layout fits (%s)\n", strings.Join(r.Verdict.Why, ", "))
	}
	if len(r.Flags) > 0 {
		p.f("\nNumbers of the article (\"Serving MoE Models: A Deep Dive into Parallelism Strategies\") that do not hold\n")
		rows := [][]string{{"", "the article", "here"}}
		for _, f := range r.Flags {
			rows = append(rows, []string{f.ID, f.Article, f.Here})
		}
		p.table(rows)
	}
}
