package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/weftgo/weft/plan"
)

// planCommand is weft plan.
type planCommand struct {
	Model    string   `help:"A preset (--list), a model folder or its config.json." default:"qwen3-235b-a22b"`
	Format   string   `help:"Store the weights as bf16, fp8, mxfp4 or int4; the default is what the model is published in." placeholder:"FORMAT"`
	Cluster  string   `help:"A kind of GPU (h200, h100, mi300x, b200, gb200), or as in 8xh200 and 4x8xh200." default:"h200"`
	GPUs     *int     `name:"gpus" help:"Number of GPUs; 8 unless the cluster says it."`
	Workload string   `help:"judge, chat or decode-heavy." default:"judge"`
	Prompt   int      `help:"Mean prompt tokens, instead of the workload's."`
	Output   int      `help:"Mean output tokens, instead of the workload's."`
	InFlight int      `help:"Requests in flight, instead of the workload's."`
	Cached   float64  `help:"Share of prompt tokens that the prefix cache has (0 to 1)."`
	Chunk    int      `name:"expert-chunk" help:"Rows for which experts keep intermediates at once; 0: all of a forward." default:"32768"`
	Tokens   int      `help:"Tokens of one forward over all ranks." default:"32768"`
	Layout   []string `help:"Layouts to compare, as tp8+ep8 or dp8+ep8:alltoall; the default is the standard comparison."`
	TP       int      `name:"tp" help:"One layout: tensor parallel size."`
	DP       int      `name:"dp" help:"One layout: data parallel size."`
	PP       int      `name:"pp" help:"One layout: pipeline stages."`
	EP       bool     `name:"ep" help:"One layout: whole experts over all ranks."`
	Backend  string   `help:"One layout: agrs or alltoall." default:"agrs" enum:"agrs,alltoall"`

	Multicast   bool    `help:"Let the switch reduce where it can (NVLS)." default:"true" negatable:""`
	TokenSkew   float64 `help:"max/mean of tokens per dp rank; the default follows from chance arrivals."`
	Zipf        float64 `help:"Exponent of expert popularity; 0 is even."`
	Redundant   int     `help:"Redundant expert copies placed by load balancing."`
	Overlap     bool    `help:"Two micro-batches that hide communication."`
	WireFP8     bool    `name:"wire-fp8" help:"Dispatch rows in fp8."`
	BroadcastLL bool    `name:"broadcast-ll" help:"agrs from grouped low-latency broadcasts, as in the article's trace."`

	Sweep string `help:"Vary ranks, tokens or concurrency: curves and crossovers." placeholder:"WHAT"`
	SVG   string `name:"svg" help:"Write the sweep's curves to this file." placeholder:"FILE"`
	JSON  bool   `name:"json" help:"Print everything as JSON."`
	List  bool   `help:"List the presets."`
}

// Run executes the command.
func (p *planCommand) Run(w io.Writer) error {
	if p.List {
		fmt.Fprintf(w, "models:    %s\nclusters:  %s\nworkloads: %s\n", strings.Join(plan.ModelNames(), " "),
			strings.Join(plan.ClusterNames(), " "), strings.Join(plan.WorkloadNames(), " "))
		return nil
	}
	q, err := p.request()
	if err != nil {
		return err
	}
	if p.Sweep != "" {
		return p.sweep(w, q)
	}
	if p.SVG != "" {
		return fmt.Errorf("--svg draws a sweep: add --sweep ranks, tokens or concurrency")
	}
	r, err := plan.New(q)
	if err != nil {
		return err
	}
	if p.JSON {
		return printJSON(w, r)
	}
	return printReport(w, r)
}

func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

func (p *planCommand) request() (q plan.Request, err error) {
	if q.Model, err = p.model(); err != nil {
		return q, err
	}
	gpus := 8
	if p.GPUs != nil {
		gpus = *p.GPUs
	} else if strings.ContainsAny(p.Cluster[:min(1, len(p.Cluster))], "0123456789") {
		gpus = 0 // the cluster says it
	}
	if p.GPUs != nil && gpus <= 0 {
		return q, fmt.Errorf("--gpus %d: want at least 1", gpus)
	}
	if q.Cluster, err = plan.ClusterPreset(p.Cluster, gpus); err != nil {
		return q, err
	}
	q.Cluster.ExpertChunk = p.Chunk
	if q.Workload, err = p.workload(); err != nil {
		return q, err
	}
	q.Tokens = p.Tokens
	if q.Layouts, err = p.layouts(q.Cluster.GPUs()); err != nil {
		return q, err
	}
	q.Options = plan.Options{Multicast: p.Multicast, TokenSkew: p.TokenSkew, Zipf: p.Zipf, Redundant: p.Redundant, Overlap: p.Overlap,
		WireFP8: p.WireFP8, BroadcastLL: p.BroadcastLL}
	return q, nil
}

func (p *planCommand) model() (plan.Model, error) {
	var m plan.Model
	var err error
	file := p.Model
	if info, err := os.Stat(file); err == nil && info.IsDir() {
		file = filepath.Join(file, "config.json")
	}
	if strings.HasSuffix(file, ".json") {
		var data []byte
		if data, err = os.ReadFile(file); err != nil {
			return m, err
		}
		m, err = plan.ParseConfig(data)
	} else {
		m, err = plan.Preset(p.Model)
	}
	if err == nil && p.Format != "" {
		m, err = m.WithFormat(plan.Format(p.Format))
	}
	return m, err
}

func (p *planCommand) workload() (plan.Workload, error) {
	w, err := plan.WorkloadPreset(p.Workload)
	if err != nil {
		return w, err
	}
	for _, f := range []struct {
		to   *int
		from int
		name string
	}{{&w.Prompt, p.Prompt, "prompt"}, {&w.Output, p.Output, "output"}, {&w.InFlight, p.InFlight, "in-flight"}} {
		if f.from < 0 {
			return w, fmt.Errorf("--%s %d: want at least 1", f.name, f.from)
		}
		if f.from > 0 {
			*f.to = f.from
		}
	}
	w.MaxPrompt = max(w.MaxPrompt, w.Prompt)
	w.Cached = p.Cached
	return w, nil
}

func (p *planCommand) layouts(gpus int) ([]plan.Layout, error) {
	var ls []plan.Layout
	for _, s := range p.Layout {
		l, err := plan.ParseLayout(s)
		if err != nil {
			return nil, err
		}
		ls = append(ls, l)
	}
	if p.TP == 0 && p.DP == 0 && p.PP == 0 && !p.EP {
		return ls, nil
	}
	l := plan.Layout{TP: max(p.TP, 1), DP: max(p.DP, 1), PP: max(p.PP, 1), EP: p.EP, Backend: plan.Backend(p.Backend)}
	if p.TP < 0 || p.DP < 0 || p.PP < 0 {
		return nil, fmt.Errorf("--tp %d --dp %d --pp %d: none may be negative", p.TP, p.DP, p.PP)
	}
	if p.TP == 0 { // the rest of the GPUs
		if gpus%(l.DP*l.PP) != 0 {
			return nil, fmt.Errorf("--dp %d x --pp %d do not divide the %d GPUs", l.DP, l.PP, gpus)
		}
		l.TP = gpus / (l.DP * l.PP)
	}
	return append(ls, l), nil
}

func (p *planCommand) sweep(w io.Writer, q plan.Request) error {
	s, err := plan.NewSweep(p.Sweep, q)
	if err != nil {
		return err
	}
	if p.SVG != "" {
		if err := os.WriteFile(p.SVG, []byte(drawSVG(s)), 0o644); err != nil {
			return err
		}
	}
	if p.JSON {
		return printJSON(w, s)
	}
	return printSweep(w, s)
}
