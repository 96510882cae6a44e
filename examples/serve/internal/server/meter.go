package server

import (
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/weftgo/weft/examples/internal/engine"
)

// meter holds the metrics that requests leave behind; what the engine counts is read when somebody asks (gauges).
type meter struct {
	handler http.Handler
	unknown atomic.Int64
	model   string

	ttft, itl, tpot, e2e, queue, inference, prefill, decode *prometheus.HistogramVec
	promptLen, outputLen, longest, maxTokens, n             *prometheus.HistogramVec
	finished, prompts, cached, generated                    *prometheus.CounterVec
}

var (
	seconds = []float64{0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640}
	counts  = []float64{1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000}
	few     = []float64{1, 2, 5, 10, 20}
)

var labels = []string{"model_name", "engine"}

func newMeter(s *Server) *meter {
	registry := prometheus.NewRegistry()
	histogram := func(name, help string, buckets []float64) *prometheus.HistogramVec {
		h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "vllm:" + name, Help: help, Buckets: buckets}, labels)
		registry.MustRegister(h)
		return h
	}
	counter := func(name, help string, more ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "vllm:" + name, Help: help}, append(more, labels...))
		registry.MustRegister(c)
		return c
	}
	m := &meter{
		model:     s.cfg.Models[0],
		handler:   promhttp.HandlerFor(registry, promhttp.HandlerOpts{}),
		ttft:      histogram("time_to_first_token_seconds", "From a request's arrival to its first token.", seconds),
		itl:       histogram("inter_token_latency_seconds", "Between two tokens of a request.", seconds),
		tpot:      histogram("request_time_per_output_token_seconds", "Mean time of an output token after the first.", seconds),
		e2e:       histogram("e2e_request_latency_seconds", "From a request's arrival to its end.", seconds),
		queue:     histogram("request_queue_time_seconds", "From a request's arrival to its first step.", seconds),
		inference: histogram("request_inference_time_seconds", "From a request's first step to its end.", seconds),
		prefill:   histogram("request_prefill_time_seconds", "From a request's first step to its first token.", seconds),
		decode:    histogram("request_decode_time_seconds", "From a request's first token to its end.", seconds),
		promptLen: histogram("request_prompt_tokens", "Tokens of prompts.", counts),
		outputLen: histogram("request_generation_tokens", "Tokens of answers.", counts),
		longest:   histogram("request_max_num_generation_tokens", "Tokens of the longest of a prompt's n answers.", counts),
		maxTokens: histogram("request_params_max_tokens", "max_tokens of requests.", counts),
		n:         histogram("request_params_n", "n of requests.", few),
		finished:  counter("request_success_total", "Requests that ended, by reason.", "finished_reason"),
		prompts:   counter("prompt_tokens_total", "Tokens of prompts, from the prefix cache or not."),
		cached:    counter("prompt_tokens_cached_total", "Tokens of prompts that came from the prefix cache."),
		generated: counter("generation_tokens_total", "Tokens that were generated."),
	}
	for i := range s.cfg.Deployment.Config.Layout.DP { // what nothing was counted in is 0, not absent
		e := replicaName(i)
		for _, c := range []*prometheus.CounterVec{m.prompts, m.cached, m.generated} {
			c.WithLabelValues(m.model, e)
		}
		for _, h := range []*prometheus.HistogramVec{m.ttft, m.itl, m.tpot, m.e2e, m.queue, m.inference, m.prefill, m.decode, m.promptLen,
			m.outputLen, m.longest, m.maxTokens, m.n} {
			h.WithLabelValues(m.model, e)
		}
		for _, reason := range []engine.FinishReason{engine.FinishStop, engine.FinishLength, engine.FinishAbort, engine.FinishError} {
			m.finished.WithLabelValues(string(reason), m.model, e)
		}
	}
	registry.MustRegister(newGauges(s), collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// token notes one generated token of a choice.
func (m *meter) token(c *choice) {
	now := time.Now()
	e := replicaName(c.handle.Replica())
	if !c.last.IsZero() {
		m.itl.WithLabelValues(m.model, e).Observe(now.Sub(c.last).Seconds())
	}
	c.last = now
	m.generated.WithLabelValues(m.model, e).Inc()
}

// answered notes a request's prompts, each by the longest of its answers.
func (m *meter) answered(a *answer) {
	for i := 0; i < len(a.choices); i += a.req.N {
		most := 0
		for _, c := range a.choices[i : i+a.req.N] {
			most = max(most, c.numTokens)
		}
		m.longest.WithLabelValues(m.model, replicaName(a.choices[i].handle.Replica())).Observe(float64(most))
	}
}

// done notes a choice that has ended; it may have been aborted.
func (m *meter) done(c *choice) {
	select {
	case <-c.handle.Done():
	default:
		return // nobody waits for an engine that does not let go
	}
	out, err := c.handle.Wait(c.server.background)
	e := replicaName(c.handle.Replica())
	reason := string(out.Reason)
	switch {
	case c.stopped:
		reason = "stop" // by a stop string, which the engine sees as an abort
	case err != nil:
		reason = string(engine.FinishError)
	}
	m.finished.WithLabelValues(reason, m.model, e).Inc()
	m.prompts.WithLabelValues(m.model, e).Add(float64(len(c.ids)))
	m.cached.WithLabelValues(m.model, e).Add(float64(out.Usage.CachedTokens))
	observe := func(h *prometheus.HistogramVec, v float64) { h.WithLabelValues(m.model, e).Observe(v) }
	observe(m.promptLen, float64(len(c.ids)))
	observe(m.outputLen, float64(c.numTokens))
	observe(m.maxTokens, float64(max(c.req.MaxTokens, 0)))
	observe(m.n, float64(c.req.N))
	t := out.Timing
	span := func(h *prometheus.HistogramVec, from, to time.Time) {
		if !from.IsZero() && !to.IsZero() {
			observe(h, to.Sub(from).Seconds())
		}
	}
	span(m.e2e, t.Submitted, t.Done)
	span(m.queue, t.Submitted, t.Scheduled)
	span(m.inference, t.Scheduled, t.Done)
	span(m.prefill, t.Scheduled, t.FirstToken)
	span(m.ttft, t.Submitted, t.FirstToken)
	span(m.decode, t.FirstToken, t.Done)
	if n := c.numTokens - 1; n > 0 && !t.FirstToken.IsZero() {
		observe(m.tpot, t.Done.Sub(t.FirstToken).Seconds()/float64(n))
	}
}
