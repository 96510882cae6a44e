package model

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/weftgo/weft/internal/race"
	"github.com/weftgo/weft/moe"
)

// states holds hidden states, the final norm and the router's choices of a prompt against the goldens.
type states struct {
	t      testing.TB
	prompt *golden
	mu     sync.Mutex
	seen   map[string]int
}

// watch makes m report to s. The prompt is alone in the batch and runs in steps of any size.
func (s *states) watch(m *Model) {
	first, rows := 0, 0 // rows of the step, and where it begins
	h := m.model.HiddenSize
	m.probe = func(at probePoint, layer int, x []float32) {
		if at == probeEmbedding {
			first, rows = first+rows, m.step.numTokens
		}
		last := len(s.prompt.IDs) - 1 - first
		if at == probeLayer && rows > 0 { // after the router of this layer ran
			s.router(m, layer, first)
		}
		if rows == 0 || last < 0 || last >= rows {
			return
		}
		switch at {
		case probeEmbedding:
			s.require(s.prompt.Hidden[0], x[last*h:(last+1)*h], "embedding")
		case probeLayer:
			s.require(s.prompt.Hidden[layer+1], x[last*h:(last+1)*h], fmt.Sprint("layer ", layer))
		case probeFinal:
			s.require(s.prompt.FinalNorm, x[len(x)-h:], "final norm")
		}
	}
}

func (s *states) require(want []float64, got []float32, what string) {
	requireClose(s.t, want, got, s.prompt.Name+" "+what)
	s.count(what)
}

func (s *states) count(what string) {
	s.mu.Lock()
	s.seen[what]++
	s.mu.Unlock()
}

// router compares the choices of the rows this rank routed, as sets, where the gap to the next expert is clear.
func (s *states) router(m *Model, layer, first int) {
	if m.layers[layer].moe == nil {
		return
	}
	if m.cfg.Parallel.DP > 1 && m.tp != nil {
		first += share(m.step.numTokens, m.cfg.Parallel.TP, m.shard).lo
	}
	ids, _ := m.layers[layer].moe.Routing()
	k := m.model.NumExpertsPerTok
	for r := range len(ids) / k {
		at := first + r
		if at >= len(s.prompt.RouterTopK[layer]) || s.prompt.RouterGap[layer][at] <= 1e-3 {
			continue
		}
		var got []int
		for _, e := range ids[r*k : (r+1)*k] {
			got = append(got, int(e))
		}
		want := slices.Clone(s.prompt.RouterTopK[layer][at])
		slices.Sort(got)
		slices.Sort(want)
		require.Equal(s.t, want, got, "%s: experts of token %d in layer %d", s.prompt.Name, at, layer)
		s.count("router")
	}
}

func TestStatesEqualTheGoldens(t *testing.T) {
	f, err := judgeFolder()
	require.NoError(t, err)
	for _, l := range []layout{one, layouts[1], layouts[2], {"dp2+ep2:alltoall", moe.Parallel{TP: 1, DP: 2, EP: true}, "alltoall"}} {
		for _, g := range judgeGoldens() {
			most := 300
			if race.Enabled {
				most = 100
			}
			if g.Hidden == nil || len(g.IDs) > most && (testing.Short() || l.name != one.name) {
				continue
			}
			t.Run(l.name+"/"+g.Name, func(t *testing.T) {
				s := &states{t: t, prompt: g, seen: map[string]int{}}
				p := makePlan([]*golden{g}, planOptions{replicas: l.parallel.DP, blockSize: 64, maxTokens: 512})
				runPlan(t, f, l, Config{MaxBatchedTokens: 512}, p, s.watch, checkRows(t, f.Config.VocabSize))
				for _, what := range []string{"embedding", "layer 0", "layer 3", "final norm"} {
					require.Equal(t, l.parallel.TP, s.seen[what], "%s was looked at on each rank of the first replica", what)
				}
				require.Greater(t, s.seen["router"], 2*min(len(g.IDs), 64), "router choices were compared")
			})
		}
	}
}
