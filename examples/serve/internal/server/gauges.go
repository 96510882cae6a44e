package server

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/examples/internal/engine"
)

func replicaName(i int) string { return strconv.Itoa(i) }

// gauges reads the engine's, the models' and the recorder's counters when Prometheus asks.
type gauges struct {
	server  *Server
	replica []replicaMetric

	padded, real, dummies, balanced, steps *prometheus.Desc
	launches, bytes, waits, compute        *prometheus.Desc
	expertTokens, balancedness, cacheInfo  *prometheus.Desc
	byReason, stepTokens, sync             *prometheus.Desc
}

// replicaMetric is one number of each replica.
type replicaMetric struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	read func(v *view, replica int) float64
}

func newGauges(s *Server) *gauges {
	desc := func(name, help string, l ...string) *prometheus.Desc { return prometheus.NewDesc(name, help, l, nil) }
	g := &gauges{
		server:       s,
		padded:       desc("weft:dp_padded_tokens_total", "Tokens that padding every replica to the largest would have run for nothing.", "model_name"),
		real:         desc("weft:dp_real_tokens_total", "Tokens that replicas ran.", "model_name"),
		dummies:      desc("weft:dummy_steps_total", "Steps in which a replica had no tokens and took part for the others' sake.", labels...),
		balanced:     desc("weft:balanced_steps_total", "Steps in which all replicas had the same number of tokens.", "model_name"),
		steps:        desc("weft:steps_total", "Steps that all ranks ran together.", "model_name"),
		launches:     desc("weft:collective_launches_total", "Collectives that a rank's model launched.", "model_name", "rank", "op", "path"),
		bytes:        desc("weft:collective_bytes_total", "Bytes that a rank's model sent to other ranks.", "model_name", "rank", "op"),
		waits:        desc("weft:collective_wait_seconds", "Time that a rank's model waited for others in its collectives, and how many there were.", "model_name", "rank", "op"),
		compute:      desc("weft:rank_busy_seconds_total", "Time of a rank by kind: compute, collective, wait.", "model_name", "rank", "kind"),
		expertTokens: desc("weft:expert_tokens_total", "(token, expert) pairs that an expert computed.", "model_name", "layer", "expert"),
		balancedness: desc("weft:expert_balancedness", "Mean over largest load of the ranks' experts, from 0 to 1.", "model_name", "layer"),
		byReason:     desc("vllm:num_requests_waiting_by_reason", "Requests that wait for a place (capacity), or for another that computes their beginning (deferred).", append(labels, "reason")...),
		stepTokens:   desc("vllm:iteration_tokens_total", "Tokens that a replica ran in a step.", labels...),
		sync:         desc("weft:dp_sync_seconds", "Time in which a replica's leader agreed with all ranks on a step, waiting for the slowest among them.", labels...),
		cacheInfo:    desc("vllm:cache_config_info", "How the key/value cache of a replica is made.", append(labels, "block_size", "num_gpu_blocks", "enable_prefix_caching")...),
	}
	add := func(name, help string, kind prometheus.ValueType, read func(*view, int) float64) {
		g.replica = append(g.replica, replicaMetric{desc(name, help, labels...), kind, read})
	}
	add("vllm:num_requests_running", "Requests that steps run.", prometheus.GaugeValue, func(v *view, i int) float64 {
		return float64(v.stats.Replicas[i].Running - v.stats.Replicas[i].Deferred)
	})
	add("vllm:num_requests_waiting", "Requests that wait, for whatever reason.", prometheus.GaugeValue, func(v *view, i int) float64 {
		return float64(v.stats.Replicas[i].Waiting + v.stats.Replicas[i].Deferred)
	})
	add("vllm:kv_cache_usage_perc", "Used part of the key/value blocks, from 0 to 1.", prometheus.GaugeValue, func(v *view, i int) float64 {
		return float64(v.stats.Replicas[i].KVUsed) / float64(max(v.stats.Replicas[i].KVTotal, 1))
	})
	add("vllm:num_preemptions_total", "Requests that had to give their blocks back.", prometheus.CounterValue, func(v *view, i int) float64 { return float64(v.stats.Replicas[i].Preemptions) })
	add("vllm:prefix_cache_queries_total", "Prompt tokens that were looked up in the prefix cache.", prometheus.CounterValue, func(v *view, i int) float64 {
		return float64(v.stats.Replicas[i].PrefixQueriedTokens)
	})
	add("vllm:prefix_cache_hits_total", "Prompt tokens that were found in the prefix cache.", prometheus.CounterValue, func(v *view, i int) float64 {
		return float64(v.stats.Replicas[i].PrefixHitTokens)
	})
	return g
}

// Describe is of prometheus.Collector.
func (g *gauges) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(g, ch) }

// Collect is of prometheus.Collector.
func (g *gauges) Collect(ch chan<- prometheus.Metric) {
	s := g.server
	v := s.view()
	model := s.cfg.Models[0]
	send := func(d *prometheus.Desc, kind prometheus.ValueType, value float64, l ...string) {
		ch <- prometheus.MustNewConstMetric(d, kind, value, append([]string{model}, l...)...)
	}
	tokens, d := int64(0), s.cfg.Deployment.Config
	for i, r := range v.stats.Replicas {
		for _, m := range g.replica {
			send(m.desc, m.kind, m.read(v, i), replicaName(i))
		}
		send(g.dummies, prometheus.CounterValue, float64(r.DummySteps), replicaName(i))
		send(g.byReason, prometheus.GaugeValue, float64(r.Waiting), replicaName(i), "capacity")
		send(g.byReason, prometheus.GaugeValue, float64(r.Deferred), replicaName(i), "deferred")
		ch <- histogramOf(g.stepTokens, r.StepTokens, model, replicaName(i))
		ch <- histogramOf(g.sync, r.Sync, model, replicaName(i))
		send(g.cacheInfo, prometheus.GaugeValue, 1, replicaName(i), strconv.Itoa(d.BlockSize), strconv.Itoa(r.KVTotal), strconv.FormatBool(d.PrefixCaching))
		tokens += r.ContextTokens + r.GenerationTokens
	}
	send(g.real, prometheus.CounterValue, float64(tokens))
	send(g.padded, prometheus.CounterValue, float64(v.stats.PaddingTokens))
	send(g.balanced, prometheus.CounterValue, float64(v.stats.BalancedSteps))
	send(g.steps, prometheus.CounterValue, float64(v.stats.Steps))
	for rank, m := range s.cfg.Deployment.Models {
		for op, c := range m.Stats() {
			if c.Calls > 0 {
				name := comm.OpKind(op).String()
				send(g.launches, prometheus.CounterValue, float64(c.Launches), strconv.Itoa(rank), name, "cpu")
				send(g.bytes, prometheus.CounterValue, float64(c.SentBytes), strconv.Itoa(rank), name)
				ch <- prometheus.MustNewConstSummary(g.waits, uint64(c.Calls), c.Wait.Seconds(), nil, model, strconv.Itoa(rank), name)
			}
		}
	}
	for _, b := range v.times {
		rank := strconv.Itoa(b.Rank)
		send(g.compute, prometheus.CounterValue, b.Compute.Seconds(), rank, "compute")
		send(g.compute, prometheus.CounterValue, b.Collective.Seconds(), rank, "collective")
		send(g.compute, prometheus.CounterValue, b.Wait.Seconds(), rank, "wait")
	}
	for layer, load := range v.experts {
		for e, n := range load.Pairs {
			send(g.expertTokens, prometheus.CounterValue, float64(n), strconv.Itoa(layer), strconv.Itoa(e))
		}
		send(g.balancedness, prometheus.GaugeValue, load.balancedness(), strconv.Itoa(layer))
	}
}

func histogramOf(d *prometheus.Desc, h engine.Histogram, l ...string) prometheus.Metric {
	below := make(map[float64]uint64, len(h.Bounds))
	n := uint64(0)
	for i, bound := range h.Bounds {
		n += h.Counts[i]
		below[bound] = n
	}
	return prometheus.MustNewConstHistogram(d, h.Count(), h.Sum, below, l...)
}
