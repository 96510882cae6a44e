package plan

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func request(t testing.TB, model, cluster, workload string) Request {
	q := question(t, model, cluster, workload)
	return Request{Model: q.Model, Cluster: q.Cluster, Workload: q.Workload, Tokens: q.Tokens, Options: Options{Multicast: true}}
}

func TestSweeps(t *testing.T) {
	for _, over := range []string{"ranks", "tokens", "concurrency"} {
		for _, q := range []Request{request(t, "qwen3-235b-a22b", "8xh200", "judge"), request(t, "deepseek-v3", "40x8xh200", "decode-heavy"),
			request(t, "llama-4-maverick", "8xmi300x", "chat")} {
			s, err := NewSweep(over, q)
			require.NoError(t, err)
			require.NotEmpty(t, s.Curves)
			for _, c := range s.Curves {
				for i, p := range c.Points {
					require.True(t, p.Y > 0 && !math.IsInf(p.Y, 0) && !math.IsNaN(p.Y), "%s %s %v", over, c.Name, p)
					require.True(t, i == 0 || p.X > c.Points[i-1].X)
				}
			}
			for _, x := range s.Crossovers {
				require.NotEqual(t, x.Better, x.Then)
				require.Greater(t, x.X, 0.0)
			}
		}
	}
	_, err := NewSweep("colour", request(t, "qwen3-235b-a22b", "8xh200", "judge"))
	require.ErrorContains(t, err, "ranks, tokens, concurrency")
	_, err = NewSweep("ranks", request(t, "qwen3-30b-a3b", "1xh200", "judge"))
	require.ErrorContains(t, err, "at least 2 GPUs")
}

// TestRankSweep: with the batch per rank fixed an all-gather grows with the ranks and loses to merged copies beyond a node.
func TestRankSweep(t *testing.T) {
	s, err := NewSweep("ranks", request(t, "deepseek-v3", "40x8xh200", "decode-heavy"))
	require.NoError(t, err)
	last := map[string]Point{}
	for _, c := range s.Curves {
		last[c.Name] = c.Points[len(c.Points)-1]
	}
	require.Equal(t, 320.0, last["agrs"].X)
	require.Greater(t, last["agrs"].Y, 3*last["all-to-all, hierarchical"].Y)
	require.Greater(t, last["all-to-all, flat"].Y, last["all-to-all, hierarchical"].Y)
}

func TestCrossovers(t *testing.T) {
	up := Curve{"up", []Point{{1, 1}, {4, 4}, {16, 16}}}
	flat := Curve{"flat", []Point{{1, 8}, {4, 8}, {16, 8}}}
	got := crossovers([]Curve{up, flat}, true)
	require.Len(t, got, 1)
	require.Equal(t, "up", got[0].Better)
	require.InDelta(t, 8, got[0].X, 1e-9)
	got = crossovers([]Curve{up, flat}, false)
	require.Equal(t, "flat", got[0].Better)
	require.Empty(t, crossovers([]Curve{flat, flat}, true))
}

func TestNewErrors(t *testing.T) {
	good := request(t, "qwen3-235b-a22b", "8xh200", "judge")
	for want, breakIt := range map[string]func(*Request){
		"0 tokens":         func(q *Request) { q.Tokens = 0 },
		"want at least":    func(q *Request) { q.Cluster.GPUsPerNode = 0 },
		"0 output tokens":  func(q *Request) { q.Workload.Output = 0 },
		"is dense":         func(q *Request) { q.Model.Experts = 0 },
		"takes 4 GPUs":     func(q *Request) { q.Layouts = []Layout{{TP: 4, DP: 1, PP: 1}} },
		"64 attention":     func(q *Request) { q.Layouts = []Layout{{TP: 3, DP: 1, PP: 1}} },
		"at least 1":       func(q *Request) { q.Options.TokenSkew = 0.5 },
		"none may be":      func(q *Request) { q.Options.Zipf = -1 },
		"in the prefix":    func(q *Request) { q.Workload.Cached = 1 },
		"want at most":     func(q *Request) { q.Cluster.Nodes = 1 << 40 },
		"0 (all) or more":  func(q *Request) { q.Cluster.ExpertChunk = -1 },
		"longest prompt":   func(q *Request) { q.Workload.MaxPrompt = 5 },
		"9 of 8 experts":   func(q *Request) { q.Model.Experts, q.Model.TopK = 8, 9 },
		"in 3 groups":      func(q *Request) { q.Model.Groups = 3 },
		"no dense interme": func(q *Request) { q.Model.DenseLayers = 1 },
	} {
		q := good
		breakIt(&q)
		_, err := New(q)
		require.ErrorContains(t, err, want)
	}
}
