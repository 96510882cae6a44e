package main

import (
	"context"
	"fmt"
	"math"
	"reflect"
	"time"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/examples/internal/deploy"
	"github.com/weftgo/weft/examples/internal/engine"
	"github.com/weftgo/weft/examples/internal/workload"
	"github.com/weftgo/weft/trace"
)

// tolerance is how far log-probabilities of two layouts may be apart: sums over ranks are in another order. The reference files
// of this model allow the same.
const tolerance = 1e-3

// layout runs the workload in one layout.
func (x *experiment) layout(ctx context.Context, l namedLayout, p *progress) (*row, error) {
	p.begin(l.name, "loading")
	recorder := trace.New(l.Size(), trace.Totals)
	if x.Trace != "" {
		recorder = trace.New(l.Size())
	}
	d, err := deploy.Open(ctx, x.folder, deploy.Config{Layout: l.Layout, MaxBatchedTokens: x.MaxTokens, Timeout: x.Timeout,
		Devices: l.devices, Recorder: recorder})
	if err != nil {
		return nil, err
	}
	row, err := x.measure(ctx, l, d, recorder, p)
	if closeErr := d.Close(ctx); err == nil {
		err = closeErr
	}
	return row, err
}

func (x *experiment) measure(ctx context.Context, l namedLayout, d *deploy.Deployment, recorder *trace.Recorder, p *progress) (*row, error) {
	p.begin(l.name, "running")
	answers := make([]answer, len(x.requests))
	report, err := workload.Run(ctx, x.requests, x.inFlight, func(ctx context.Context, i int, r workload.Request) (workload.Result, error) {
		out, err := x.submit(ctx, d.Engine, r)
		if err != nil {
			return workload.Result{}, err
		}
		answers[i] = newAnswer(out)
		ids := out.IDs
		if out.Reason == engine.FinishStop {
			ids = ids[:len(ids)-1]
		}
		return workload.Result{Text: x.tok.Decode(ids, true), PromptTokens: out.Usage.PromptTokens, OutputTokens: out.Usage.CompletionTokens}, nil
	}, p.done)
	if err != nil {
		return nil, err
	}
	if err := d.Stop(ctx); err != nil { // the last step's ranks may still be in it
		return nil, err
	}
	steps, dummies := d.Steps()
	r := &row{
		Name: l.name, Devices: l.devices, Ranks: l.Size(), TP: l.TP, DP: l.DP, EP: l.EP, Backend: l.Backend,
		Requests: report.NumRequests, Wall: report.Wall.Seconds(), RequestsPerS: report.RequestsPerSecond(),
		P50: ms(report.P50), P99: ms(report.P99), PromptTokensPerS: report.PromptTokensPerSecond(), Accuracy: report.Accuracy(),
		Steps: steps, DummySteps: dummies,
	}
	if layers := d.Models[0].MoELayers(); len(layers) > 0 {
		r.MoELayer = layers[0].String()
	}
	for _, b := range recorder.Breakdown() {
		c, k, w := b.Shares()
		r.Shares = append(r.Shares, share{Rank: b.Rank, Compute: c, Collective: k, Wait: w, BusyS: b.Busy().Seconds()})
	}
	r.count(d)
	x.compare(r, answers)
	x.compareBits(r, answers)
	if x.Trace != "" {
		x.traces = append(x.traces, trace.Part{Name: l.name, Recorder: recorder})
	}
	return r, nil
}

func (x *experiment) submit(ctx context.Context, e *engine.Engine, r workload.Request) (engine.Output, error) {
	h, err := e.Submit(ctx, engine.Request{IDs: x.tok.Encode(r.Prompt), MaxTokens: r.MaxTokens, Logprobs: r.TopLogprobs})
	if err != nil {
		return engine.Output{}, err
	}
	out, err := h.Wait(ctx)
	if err == nil && out.Reason == engine.FinishAbort {
		err = fmt.Errorf("the request was aborted after %d tokens", len(out.IDs))
	}
	return out, err
}

func newAnswer(out engine.Output) answer {
	a := answer{ids: out.IDs, logprobs: out.Logprobs}
	for _, top := range out.Top {
		row := make([]float32, len(top))
		for i, t := range top {
			row[i] = t.Logprob
		}
		a.top = append(a.top, row)
	}
	return a
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// count holds the counters of the run against the formulas.
func (r *row) count(d *deploy.Deployment) {
	l := d.Config.Layout
	measured, formulas := d.Measured(), d.Formula()
	for k := range measured {
		m, f := measured[k], formulas[k]
		if m.Calls == 0 && f.Calls == 0 {
			continue
		}
		c := counter{Kind: comm.OpKind(k).String(), Calls: m.Calls, FormulaCalls: f.Calls, Bytes: m.Bytes, FormulaBytes: f.Bytes}
		if c.Equal = m == f; !c.Equal {
			r.problem("%s: %d calls and %d bytes, but the formula gives %d and %d", c.Kind, c.Calls, c.Bytes, c.FormulaCalls, c.FormulaBytes)
		}
		r.Counters = append(r.Counters, c)
		r.Formulas = append(r.Formulas, formula{c.Kind, f.Calls, f.Bytes})
	}
	choices := d.Choices()
	r.Load = newLoad(choices.Pairs)
	if !l.UseExchange() || choices.Tokens == 0 {
		return
	}
	stats := d.Exchanged()
	tokens := float64(choices.Tokens)
	r.Copies = copies{Tokens: stats.NumTokens, Copies: stats.NumCopies, Cross: stats.NumCrossCopies,
		PerToken: float64(stats.NumCopies) / tokens, Routing: float64(choices.Copies) / tokens}
	want := choices.Copies
	if l.Backend == "agrs" {
		want = choices.Tokens * int64(l.Size()) // every rank gets every row
	}
	if stats.NumTokens != choices.Tokens || stats.NumCopies != want {
		r.problem("exchange: %d copies of %d tokens, but the routers' choices need %d of %d", stats.NumCopies, stats.NumTokens, want, choices.Tokens)
	}
}

// compare holds the answers against the first layout's.
func (x *experiment) compare(r *row, answers []answer) {
	if x.answers == nil {
		x.answers = answers
	}
	for i, a := range answers {
		b := x.answers[i]
		if !sameIDs(a.ids, b.ids) {
			r.TextsDiffer++
			continue
		}
		r.MaxLogprob = max(r.MaxLogprob, furthest(a.logprobs, b.logprobs))
		for j := range a.top {
			r.MaxLogprob = max(r.MaxLogprob, furthest(a.top[j], b.top[j]))
		}
	}
	if r.Same = r.TextsDiffer == 0 && r.MaxLogprob <= tolerance; !r.Same {
		r.problem("%d of %d texts differ from the first layout's; log-probabilities by up to %.2g (allowed: %g)", r.TextsDiffer, len(answers), r.MaxLogprob, tolerance)
	}
}

// compareBits holds the answers of a layout whose collectives ran on GPUs against its own on the CPU: the sums are taken in the
// same order, and nothing in a model depends on how requests met in a step, so they are equal to the last bit.
func (x *experiment) compareBits(r *row, answers []answer) {
	if r.Devices == "" {
		x.onCPU = answers
		return
	}
	for i, a := range answers {
		if !reflect.DeepEqual(a, x.onCPU[i]) {
			r.BitsDiffer++
		}
	}
	if r.BitsDiffer > 0 {
		r.problem("%d of %d answers differ from those of the same layout on the CPU", r.BitsDiffer, len(answers))
	}
}

func sameIDs(a, b []int32) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// furthest returns the largest difference of two lists, the largest number if they differ in length or hold NaN.
func furthest(a, b []float32) (d float64) {
	if len(a) != len(b) {
		return math.MaxFloat64 // JSON has no infinity
	}
	for i := range a {
		e := math.Abs(float64(a[i]) - float64(b[i]))
		if math.IsNaN(e) {
			return math.MaxFloat64 // JSON has no infinity
		}
		d = max(d, e)
	}
	return d
}
