package plan

import (
	"fmt"
)

// Request asks for a plan.
type Request struct {
	Model    Model
	Cluster  Cluster
	Workload Workload
	Tokens   int      // of one forward, over all ranks
	Layouts  []Layout // nil: the standard comparison
	Options  Options
}

// Row is one layout of a report.
type Row struct {
	Layout   string   `json:"layout"`
	Summary  string   `json:"summary"`
	Steps    []Step   `json:"steps"`
	Exchange bool     `json:"uses_exchange"`
	Traffic  []Volume `json:"traffic"`
	Memory   Memory   `json:"memory"`
	Forward  Timing   `json:"forward"` // of Tokens prefill tokens
	Serving  Serving  `json:"serving"` // of the workload
	Parsed   Layout   `json:"-"`
}

// Fanout is how many ranks a token reaches.
type Fanout struct {
	Ranks       int     `json:"ranks"`
	Independent float64 `json:"independent"` // own rank counted
	Distinct    float64 `json:"distinct"`
	OnTheWire   float64 `json:"distinct_on_the_wire"`
}

// Report is a plan.
type Report struct {
	Model        string   `json:"model"`
	Cluster      Cluster  `json:"cluster"`
	Workload     Workload `json:"workload"`
	Tokens       int      `json:"tokens"`
	Params       Params   `json:"params"`
	WeightBytes  int64    `json:"weight_bytes"`
	S            float64  `json:"activation_bytes"`
	KVPerTokenTP int64    `json:"kv_bytes_per_token_tp"`
	KVPerTokenDP int64    `json:"kv_bytes_per_token_dp"`
	Fanouts      []Fanout `json:"fanouts"`
	Rows         []Row    `json:"layouts"`
	HandOffs     []Volume `json:"hand_offs"` // of pipelines with 2, 4, 8 stages
	Advice       []Advice `json:"advice"`
	Verdict      Verdict  `json:"verdict"`
	Flags        []Flag   `json:"flags,omitempty"`
	Assumptions  []string `json:"assumptions"`
}

// New makes a plan. It returns an error for an impossible model, cluster or workload, no tokens, or a layout that does not
// divide the model or does not cover the cluster's GPUs. A layout that does not fit in memory is a row with a refusal.
func New(q Request) (*Report, error) {
	if err := q.Model.Validate(); err != nil {
		return nil, err
	}
	if err := q.Cluster.Validate(); err != nil {
		return nil, err
	}
	if err := q.Workload.Validate(); err != nil {
		return nil, err
	}
	if q.Tokens <= 0 {
		return nil, fmt.Errorf("plan: %d tokens in a forward; want at least 1", q.Tokens)
	}
	if err := q.Options.Validate(); err != nil {
		return nil, err
	}
	m, c := q.Model, q.Cluster
	g := c.GPUs()
	layouts := q.Layouts
	if layouts == nil {
		layouts = StandardLayouts(m, g)
	}
	r := &Report{Model: m.Name, Cluster: c, Workload: q.Workload, Tokens: q.Tokens, Params: m.Params(), WeightBytes: m.WeightBytes(),
		S: ActivationBytes(m, q.Tokens), KVPerTokenTP: m.KVBytesPerToken(g, m.Layers), KVPerTokenDP: m.KVBytesPerToken(1, m.Layers),
		Flags: Flags(m, g, q.Tokens), Assumptions: assumptions(c)}
	for _, l := range layouts {
		if err := l.Check(m); err != nil {
			return nil, err
		}
		if l.GPUs() != g {
			return nil, fmt.Errorf("plan: layout %s takes %d GPUs, the cluster has %d", l, l.GPUs(), g)
		}
		r.Rows = append(r.Rows, row(q, l))
	}
	for _, p := range []int{2, 4, 8, 16, 32, 64, 72} {
		d := FanoutDistinct(p, m.Experts, m.TopK)
		r.Fanouts = append(r.Fanouts, Fanout{p, FanoutIndependent(p, m.TopK), d, d * float64(p-1) / float64(p)})
	}
	for _, p := range []int{2, 4, 8} {
		b := HandOffFactor(p) * r.S
		r.HandOffs = append(r.HandOffs, Volume{fmt.Sprintf("pp%d", p), b, b / float64(p), HandOffFactor(p)})
	}
	r.Advice, r.Verdict = Advise(Question{m, c, q.Workload, q.Tokens})
	r.Advice = append(r.Advice, disagreement(r)...)
	return r, nil
}

// RulePrediction fires when the time model prefers another layout than the rules by more than its own error.
const RulePrediction = "prediction-differs"

func disagreement(r *Report) []Advice {
	best, verdict := 0, -1
	for i, row := range r.Rows {
		if row.Serving.Requests > r.Rows[best].Serving.Requests {
			best = i
		}
		if row.Layout == r.Verdict.Layout {
			verdict = i
		}
	}
	if verdict < 0 || r.Rows[best].Serving.Requests <= 1.15*r.Rows[verdict].Serving.Requests {
		return nil
	}
	return []Advice{{RulePrediction, "measure", fmt.Sprintf("the rules say %s, the time model %s (%.1f against %.1f requests/s): it knows no "+
		"kernel that is slower than its table, no padding and no stalls", r.Verdict.Layout, r.Rows[best].Layout,
		r.Rows[best].Serving.Requests, r.Rows[verdict].Serving.Requests), measureLayouts}}
}

func row(q Request, l Layout) Row {
	m, c, w := q.Model, q.Cluster, q.Workload
	budget := max(1, q.Tokens/l.DP)
	return Row{Layout: l.String(), Summary: Summary(l), Steps: Steps(m, l), Exchange: l.UseExchange(),
		Traffic: Traffic(m, l, q.Tokens), Memory: MemoryOf(m, c, l, budget, w.MaxPrompt+w.Output),
		Forward: Forward(m, c, l, Batch{Prefill: q.Tokens, Context: w.Prompt}, q.Options),
		Serving: Serve(m, c, l, w, w.InFlight, budget, q.Options), Parsed: l}
}

// Validate returns an error for a knob out of range.
func (o Options) Validate() error {
	if o.TokenSkew != 0 && o.TokenSkew < 1 {
		return fmt.Errorf("plan: token skew %g; max/mean is at least 1", o.TokenSkew)
	}
	if o.Zipf < 0 || o.Redundant < 0 || o.LockstepUS < 0 {
		return fmt.Errorf("plan: zipf %g, redundant experts %d, lockstep %g us: none may be negative", o.Zipf, o.Redundant, o.LockstepUS)
	}
	return nil
}

func assumptions(c Cluster) []string {
	return []string{
		"times are predictions from the constants in plan/constants.go; docs/planner.md has their errors on published tables",
		fmt.Sprintf("GPU rates: %s", c.Source),
		fmt.Sprintf("a GEMM over slices of width d reaches d/(d+%d) of the rate (from the article's 40 against 44 requests/s)", sliceHalf),
		fmt.Sprintf("%d us per forward for launches and scheduling; prompts arrive by chance, dp ranks wait for the fullest", stepUS),
		fmt.Sprintf("%.1f GiB per GPU for the runtime and %.0f %% of memory usable", gib(c.RuntimeBytes), 100*c.Utilization),
		"activations and KV cache are bf16; of the prompts' tokens the prefix cache has the share that the workload says",
	}
}
