package server

import (
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/examples/internal/deploy"
)

var sample = regexp.MustCompile(`^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)$`)
var label = regexp.MustCompile(`([a-z_]+)="[^"]*"`)

// metrics reads /metrics: "name type labels" of each family of vLLM's and weft's, and the value of each sample.
func (r *rig) metrics() (families []string, values map[string]float64) {
	r.t.Helper()
	status, text := r.get("/metrics")
	require.Equal(r.t, 200, status)
	kinds, labels := map[string]string{}, map[string][]string{}
	values = map[string]float64{}
	for _, line := range strings.Split(text, "\n") {
		if rest, ok := strings.CutPrefix(line, "# TYPE "); ok {
			name, kind, _ := strings.Cut(rest, " ")
			kinds[name] = kind
		}
		m := sample.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		v, err := strconv.ParseFloat(m[3], 64)
		require.NoError(r.t, err, line)
		values[strings.TrimSuffix(line, " "+m[3])] = v
		family := m[1]
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			if short := strings.TrimSuffix(family, suffix); kinds[short] == "histogram" || kinds[short] == "summary" {
				family = short
			}
		}
		for _, l := range label.FindAllStringSubmatch(m[2], -1) {
			if l[1] != "le" && !slices.Contains(labels[family], l[1]) {
				labels[family] = append(labels[family], l[1])
			}
		}
	}
	for name, kind := range kinds {
		if strings.HasPrefix(name, "vllm:") || strings.HasPrefix(name, "weft:") {
			slices.Sort(labels[name])
			families = append(families, name+" "+kind+" "+strings.Join(labels[name], ","))
		}
	}
	slices.Sort(families)
	return families, values
}

// All metrics of vLLM's names and weft's own: names, types and labels are those of the list, before any request and after.
// Dashboards and clients read them by name.
func TestMetricsList(t *testing.T) {
	text, err := os.ReadFile("testdata/metrics.txt")
	require.NoError(t, err)
	want := strings.Split(strings.TrimSpace(string(text)), "\n")
	r := start(t, "dp2+ep2:alltoall", func(d *deploy.Config, _ *Config) { d.PrefixCaching = true })
	families, _ := r.metrics()
	// Counters of collectives come with the first step.
	fresh := slices.DeleteFunc(slices.Clone(want), func(f string) bool { return strings.Contains(f, "rank") && !strings.Contains(f, "kind") })
	for _, f := range fresh {
		require.Contains(t, families, f)
	}
	r.complete(object{"prompt": []string{"Hello", "three of five"}, "max_tokens": 3, "n": 2, "ignore_eos": true})
	families, _ = r.metrics()
	require.Equal(t, want, families)
}

// What the numbers say after requests of which everything is known.
func TestMetricsValues(t *testing.T) {
	r := start(t, "tp2", func(d *deploy.Config, _ *Config) { d.PrefixCaching, d.WaitForPrefix = true, true })
	ids := make([]int, 100)
	a := r.complete(object{"prompt": ids, "max_tokens": 5, "n": 3, "ignore_eos": true, "seed": 1})
	require.Equal(t, 15, a.Usage.Completion)
	r.complete(object{"prompt": ids[:40], "max_tokens": 2, "ignore_eos": true})
	r.refused("/v1/completions", 400, object{"prompt": ids, "n": 0})
	at := func(name, more string) string { return "vllm:" + name + `{engine="0",` + more + `model_name="judge"}` }
	var v map[string]float64
	require.Eventually(t, func() bool { // a request is noted after its answer was sent
		_, v = r.metrics()
		return v[at("request_params_n_count", "")] == 4
	}, 10*time.Second, time.Millisecond)
	for name, want := range map[string]float64{
		at("prompt_tokens_total", ""): 340, at("generation_tokens_total", ""): 17, at("request_success_total", `finished_reason="length",`): 4,
		at("request_success_total", `finished_reason="abort",`): 0, at("request_prompt_tokens_sum", ""): 340, at("request_generation_tokens_sum", ""): 17,
		at("request_max_num_generation_tokens_sum", ""): 7, at("request_max_num_generation_tokens_count", ""): 2,
		at("request_params_max_tokens_sum", ""): 3*5 + 2, at("num_requests_running", ""): 0, at("num_requests_waiting", ""): 0,
		at("num_requests_waiting_by_reason", "")[:len(at("num_requests_waiting_by_reason", ""))-1] + `,reason="deferred"}`: 0,
		at("prefix_cache_queries_total", ""): 340, at("inter_token_latency_seconds_count", ""): 3*4 + 1, at("time_to_first_token_seconds_count", ""): 4,
	} {
		got, ok := v[name]
		require.True(t, ok, name)
		require.Equal(t, want, got, name)
	}
	hits := v[at("prefix_cache_hits_total", "")]
	require.Equal(t, hits, v[at("prompt_tokens_cached_total", "")])
	// Two of the three wait while the first computes six blocks; the second prompt begins with two of these.
	require.EqualValues(t, 96+96+32, hits)
	require.EqualValues(t, 340-hits+4*3+1, v[at("iteration_tokens_total_sum", "")], "all that ran: prompts without what was cached, and decode steps")
	require.Positive(t, v[`weft:dp_sync_seconds_count{engine="0",model_name="judge"}`])
	require.Positive(t, v[`weft:collective_wait_seconds_count{model_name="judge",op="all_reduce",rank="1"}`])
}

// A request that waits for a place is counted by its reason, and in the sum.
func TestWaitingByReason(t *testing.T) {
	r := start(t, "tp1", func(d *deploy.Config, _ *Config) { d.MaxSeqs = 1 })
	first, second := r.post("/v1/completions", long(true)), make(chan struct{})
	go func() {
		defer close(second)
		resp, err := r.c.Post(r.url+"/v1/completions", "application/json", strings.NewReader(`{"prompt":"Hello","max_tokens":1}`))
		if err == nil {
			resp.Body.Close()
		}
	}()
	require.Eventually(t, func() bool { return r.d.Engine.Stats().Total().Waiting == 1 }, 20*time.Second, time.Millisecond)
	_, v := r.metrics()
	for name, want := range map[string]float64{
		`vllm:num_requests_running{engine="0",model_name="judge"}`:                             1,
		`vllm:num_requests_waiting{engine="0",model_name="judge"}`:                             1,
		`vllm:num_requests_waiting_by_reason{engine="0",model_name="judge",reason="capacity"}`: 1,
		`vllm:num_requests_waiting_by_reason{engine="0",model_name="judge",reason="deferred"}`: 0,
	} {
		require.Equal(t, want, v[name], name)
	}
	first.Body.Close()
	<-second
	r.idle()
}
