package server

import (
	_ "embed"
	"net/http"
	"time"

	"github.com/weftgo/weft/examples/internal/engine"
	"github.com/weftgo/weft/trace"
)

// view is a snapshot of all that is counted.
type view struct {
	stats   engine.Stats
	times   []trace.Breakdown // [ranks]; nil without a recorder
	experts []expertLoad      // [MoE layers]
}

// expertLoad is what routers gave the experts of one layer.
type expertLoad struct {
	Pairs   []int64 `json:"pairs"`    // [numExperts] (token, expert) pairs
	PerRank []int64 `json:"per_rank"` // [ranks] pairs that a rank's experts computed; with sliced experts all have the same
}

// balancedness is mean / max of the ranks' loads, 1 for none.
func (l *expertLoad) balancedness() float64 {
	sum, most := int64(0), int64(0)
	for _, n := range l.PerRank {
		sum += n
		most = max(most, n)
	}
	if most == 0 {
		return 1
	}
	return float64(sum) / float64(len(l.PerRank)) / float64(most)
}

func (s *Server) view() *view {
	d := s.cfg.Deployment
	v := &view{stats: s.engine.Stats(), times: s.cfg.Recorder.Breakdown()}
	for i := range d.Models[0].MoELayers() {
		var l expertLoad
		for rank, m := range d.Models {
			load := m.MoELayers()[i].Load()
			sum := int64(0)
			if l.Pairs == nil {
				l.Pairs = make([]int64, len(load))
			}
			for e, n := range load {
				sum += n
				if d.Config.Layout.EP || rank == 0 { // sliced experts count everything on every rank
					l.Pairs[e] += n
				}
			}
			l.PerRank = append(l.PerRank, sum)
		}
		v.experts = append(v.experts, l)
	}
	return v
}

// rankStatus is where a rank's time went since the start, in seconds.
type rankStatus struct {
	Rank       int     `json:"rank"`
	Replica    int     `json:"replica"`
	Compute    float64 `json:"compute_s"`
	Collective float64 `json:"collective_s"`
	Wait       float64 `json:"wait_s"`
	LastTokens int     `json:"last_step_tokens"`
	SentBytes  int64   `json:"sent_bytes"`
}

// replicaStatus is one replica's queue and cache.
type replicaStatus struct {
	Running    int   `json:"running"`
	Waiting    int   `json:"waiting"`
	KVUsed     int   `json:"kv_used"`
	KVCached   int   `json:"kv_cached"`
	KVTotal    int   `json:"kv_total"`
	Context    int64 `json:"context_tokens"`
	Generation int64 `json:"generation_tokens"`
	Dummy      int64 `json:"dummy_steps"`
	Queried    int64 `json:"prefix_queried_tokens"`
	Hit        int64 `json:"prefix_hit_tokens"`
}

// status answers what the page shows. Rates are differences of two answers.
func (s *Server) status(w http.ResponseWriter, _ *http.Request) {
	d, v := s.cfg.Deployment, s.view()
	health := "ok"
	if err := s.health(); err != nil {
		health = err.Message
	}
	answer := struct {
		Time     float64         `json:"time_s"`
		Model    string          `json:"model"`
		Layout   string          `json:"layout"`
		MoELayer string          `json:"moe_layer"`
		Health   string          `json:"health"`
		Steps    int64           `json:"steps"`
		InFlight int             `json:"in_flight"`
		Ranks    []rankStatus    `json:"ranks"`
		Replicas []replicaStatus `json:"replicas"`
		Experts  []expertLoad    `json:"experts"`
	}{
		Time: float64(time.Now().UnixMicro()) / 1e6, Model: s.cfg.Models[0], Layout: d.Config.Layout.String(), Health: health,
		Steps: v.stats.Steps, InFlight: s.queue.used(), Experts: v.experts,
	}
	if layers := d.Models[0].MoELayers(); len(layers) > 0 {
		answer.MoELayer = layers[0].String()
	}
	for rank, m := range d.Models {
		r := rankStatus{Rank: rank, Replica: rank / d.Config.Layout.TP, LastTokens: v.stats.LastTokens[rank], SentBytes: m.Stats().Total().SentBytes}
		if rank < len(v.times) {
			b := v.times[rank]
			r.Compute, r.Collective, r.Wait = b.Compute.Seconds(), b.Collective.Seconds(), b.Wait.Seconds()
		}
		answer.Ranks = append(answer.Ranks, r)
	}
	for _, r := range v.stats.Replicas {
		answer.Replicas = append(answer.Replicas, replicaStatus{Running: r.Running, Waiting: r.Waiting, KVUsed: r.KVUsed, KVCached: r.KVCached,
			KVTotal: r.KVTotal, Context: r.ContextTokens, Generation: r.GenerationTokens, Dummy: r.DummySteps,
			Queried: r.PrefixQueriedTokens, Hit: r.PrefixHitTokens})
	}
	s.reply(w, http.StatusOK, answer)
}

//go:embed page.html
var page []byte

// page is the status page: it asks /status every second and needs nothing else.
func (s *Server) page(w http.ResponseWriter, _ *http.Request) {
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", "default-src 'none'; connect-src 'self'; style-src 'unsafe-inline'; script-src 'unsafe-inline'")
	_, _ = w.Write(page)
}
