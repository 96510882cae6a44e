package main

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// row is what one layout's run showed: a line of the table, and an object of the JSON file.
type row struct {
	Name     string `json:"name"` // as asked for
	Ranks    int    `json:"ranks"`
	TP       int    `json:"tp"`
	DP       int    `json:"dp"`
	EP       bool   `json:"ep"`
	Backend  string `json:"backend,omitempty"`
	MoELayer string `json:"moe_layer"`         // what was chosen and why
	Devices  string `json:"devices,omitempty"` // GPUs that ran the collectives

	Requests         int     `json:"requests"`
	Wall             float64 `json:"wall_s"`
	RequestsPerS     float64 `json:"requests_per_s"`
	P50              float64 `json:"p50_ms"`
	P99              float64 `json:"p99_ms"`
	PromptTokensPerS float64 `json:"prompt_tokens_per_s"`
	Accuracy         float64 `json:"accuracy"`

	Shares []share `json:"time_per_rank"`

	Steps      int64     `json:"forwards"`    // steps of the whole world
	DummySteps int64     `json:"dummy_steps"` // of them, summed over ranks, those in which a rank had no token
	Counters   []counter `json:"counters"`
	Formulas   []formula `json:"formulas"`
	Copies     copies    `json:"copies"`
	Load       load      `json:"expert_load"`

	Same        bool     `json:"same_as_tp8"`
	TextsDiffer int      `json:"texts_that_differ"`
	MaxLogprob  float64  `json:"max_logprob_difference"`
	BitsDiffer  int      `json:"answers_with_other_bits_than_on_the_cpu"` // where collectives ran on GPUs
	Problems    []string `json:"problems,omitempty"`
}

// share is where one rank's time went, in parts of its busy time.
type share struct {
	Rank       int     `json:"rank"`
	Compute    float64 `json:"compute"`
	Collective float64 `json:"collective"`
	Wait       float64 `json:"wait"`
	BusyS      float64 `json:"busy_s"`
}

// counter holds one kind of collective against its formula: calls of one rank (equal on all), bytes moved between ranks in all.
type counter struct {
	Kind         string `json:"kind"`
	Calls        int64  `json:"calls"`
	FormulaCalls int64  `json:"formula_calls"`
	Bytes        int64  `json:"bytes"`
	FormulaBytes int64  `json:"formula_bytes"`
	Equal        bool   `json:"equal"`
}

// formula is what a counter must be by the model's shape and the steps' tokens, for readers that want only that.
type formula struct {
	Kind  string `json:"kind"`
	Calls int64  `json:"calls"`
	Bytes int64  `json:"bytes"`
}

// copies is how often a token's row travelled to an expert's rank in a MoE layer, its own rank counted.
type copies struct {
	Tokens   int64   `json:"tokens"` // rows dispatched, over ranks and layers
	Copies   int64   `json:"copies"`
	Cross    int64   `json:"cross_rank_copies"` // of them to another rank
	PerToken float64 `json:"per_token"`
	Routing  float64 `json:"per_token_by_routing"` // the same by the router's choices alone
}

// load is how evenly the routed (token, expert) pairs spread over ranks.
type load struct {
	PerRank   []int64 `json:"pairs_per_rank"`
	MaxByMean float64 `json:"max_by_mean"`
	MaxByMin  float64 `json:"max_by_min"`
}

func newLoad(perRank []int64) load {
	l := load{PerRank: perRank}
	var sum int64
	lo, hi := perRank[0], perRank[0]
	for _, n := range perRank {
		sum += n
		lo, hi = min(lo, n), max(hi, n)
	}
	if sum > 0 {
		l.MaxByMean = float64(hi) * float64(len(perRank)) / float64(sum)
	}
	if lo > 0 {
		l.MaxByMin = float64(hi) / float64(lo)
	}
	return l
}

func (r *row) problem(format string, args ...any) {
	r.Problems = append(r.Problems, fmt.Sprintf(format, args...))
}

// printTable writes the rows for a person: how fast, and what moved.
func printTable(w io.Writer, rows []*row) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "layout\treq/s\tp50 ms\tp99 ms\tprompt tok/s\tcompute\tcollective\twait\taccuracy\tas %s\t\n", rows[0].Name)
	for _, r := range rows {
		c, k, wait := r.meanShares()
		fmt.Fprintf(t, "%s\t%.2f\t%.0f\t%.0f\t%.0f\t%.0f%%\t%.0f%%\t%.0f%%\t%.1f%%\t%s\t\n",
			r.Name, r.RequestsPerS, r.P50, r.P99, r.PromptTokensPerS, 100*c, 100*k, 100*wait, 100*r.Accuracy, yes(r.Same))
	}
	t.Flush()
	fmt.Fprintln(w)
	fmt.Fprintln(t, "layout\tcollectives/fwd\tMB/fwd\t= formula\tcopies/token\tload max/mean\tload max/min\t")
	for _, r := range rows {
		calls, bytes, equal := r.perForward()
		copiesText := "-"
		if r.Copies.Tokens > 0 {
			copiesText = fmt.Sprintf("%.2f", r.Copies.PerToken)
		}
		fmt.Fprintf(t, "%s\t%.1f\t%.2f\t%s\t%s\t%.2f\t%.2f\t\n", r.Name, calls, bytes/1e6, yes(equal), copiesText, r.Load.MaxByMean, r.Load.MaxByMin)
	}
	t.Flush()
	for _, r := range rows {
		for _, p := range r.Problems {
			fmt.Fprintf(w, "PROBLEM %s: %s\n", r.Name, p)
		}
	}
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "NO"
}

func (r *row) meanShares() (compute, collective, wait float64) {
	for _, s := range r.Shares {
		n := float64(len(r.Shares))
		compute += s.Compute / n
		collective += s.Collective / n
		wait += s.Wait / n
	}
	return
}

// perForward returns the collectives that one rank calls and the bytes that all ranks move in one forward.
func (r *row) perForward() (calls, bytes float64, equal bool) {
	equal = true
	for _, c := range r.Counters {
		calls += float64(c.Calls)
		bytes += float64(c.Bytes)
		equal = equal && c.Equal
	}
	if r.Steps > 0 {
		calls /= float64(r.Steps) * float64(r.Ranks)
		bytes /= float64(r.Steps)
	}
	return
}

// legend says what the columns mean.
const legend = `
compute, collective, wait  parts of a rank's busy time, mean over ranks; where ranks outnumber cores, a rank that is
                           ready but has no core spends that time where it is
as ...                     same texts as the first layout, and log-probabilities within 1e-3
collectives/fwd, MB/fwd    calls of one rank in one forward, and bytes between ranks, all ranks together; without the
                           engine's own agreement before a step
= formula                  calls and bytes are what the model's shape, the step's tokens and the router's choices give
copies/token               ranks that get a token in a MoE layer, its own counted
load                       routed (token, expert) pairs per rank
`

// printDetails writes the counters and the time of each rank.
func printDetails(w io.Writer, rows []*row) {
	for _, r := range rows {
		fmt.Fprintf(w, "\n%s: %s\n  %d forwards, in which a replica had no tokens %d times\n", r.Name, r.MoELayer, r.Steps, r.DummySteps)
		for _, c := range r.Counters {
			fmt.Fprintf(w, "  %-16s %8d calls (formula %d), %d bytes (formula %d)\n", c.Kind, c.Calls, c.FormulaCalls, c.Bytes, c.FormulaBytes)
		}
		for _, s := range r.Shares {
			fmt.Fprintf(w, "  rank %d: compute %.1f%%, collective %.1f%%, wait %.1f%% of %.2f s\n", s.Rank, 100*s.Compute, 100*s.Collective, 100*s.Wait, s.BusyS)
		}
	}
}
