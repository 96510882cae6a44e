package model

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/weftgo/weft/internal/race"
	"github.com/weftgo/weft/moe"
)

var layouts = []layout{
	{"tp8", moe.Parallel{TP: 8, DP: 1}, ""},
	{"tp8+ep8", moe.Parallel{TP: 8, DP: 1, EP: true}, ""},
	{"dp2tp4+ep8", moe.Parallel{TP: 4, DP: 2, EP: true}, "alltoall"},
	{"dp4tp2+ep8", moe.Parallel{TP: 2, DP: 4, EP: true}, "agrs"},
	{"dp8", moe.Parallel{TP: 1, DP: 8}, ""},
	{"dp8+ep8:agrs", moe.Parallel{TP: 1, DP: 8, EP: true}, "agrs"},
	{"dp8+ep8:alltoall", moe.Parallel{TP: 1, DP: 8, EP: true}, "alltoall"},
}

// oddLayouts do not divide what they share.
var oddLayouts = []layout{
	{"tp2", moe.Parallel{TP: 2, DP: 1}, ""},
	{"tp3", moe.Parallel{TP: 3, DP: 1}, ""},
	{"tp5+ep5", moe.Parallel{TP: 5, DP: 1, EP: true}, ""},
	{"tp6", moe.Parallel{TP: 6, DP: 1}, ""},
	{"dp2tp2", moe.Parallel{TP: 2, DP: 2}, ""},
	{"dp3+ep3:alltoall", moe.Parallel{TP: 1, DP: 3, EP: true}, "alltoall"},
	{"dp2tp3+ep6:alltoall", moe.Parallel{TP: 3, DP: 2, EP: true}, "alltoall"},
	{"dp3tp2+ep6:agrs", moe.Parallel{TP: 2, DP: 3, EP: true}, "agrs"},
	{"dp2tp4:noep", moe.Parallel{TP: 4, DP: 2}, ""},
	{"dp7", moe.Parallel{TP: 1, DP: 7}, ""},
}

func TestJudgeOnEveryLayout(t *testing.T) {
	f, err := judgeFolder()
	require.NoError(t, err)
	prompts := judgeGoldens()
	if testing.Short() {
		prompts = short(prompts)
	}
	spread := layouts
	if race.Enabled { // the odd model runs on all of them
		spread = []layout{layouts[0], layouts[2], layouts[6]}
	}
	for _, l := range spread {
		t.Run(l.name, func(t *testing.T) {
			p := makePlan(prompts, planOptions{replicas: l.parallel.DP, blockSize: 32, maxTokens: 1024, echo: true, decode: 8})
			runPlan(t, f, l, Config{BlockSize: 32, MaxBatchedTokens: 1024}, p, nil, checkRows(t, f.Config.VocabSize))
		})
	}
}

// The odd model has 6 heads on 2 key/value heads, 10 experts, widths 104 and 40, a vocabulary of 515 and a dense layer on either
// side of the MoE layer.
func TestOddOnEveryLayout(t *testing.T) {
	f, err := oddFolder()
	require.NoError(t, err)
	for _, l := range append(layouts, oddLayouts...) {
		t.Run(l.name, func(t *testing.T) {
			cfg := Config{BlockSize: 16, MaxBatchedTokens: 64}
			p := makePlan(oddGoldens(), planOptions{replicas: l.parallel.DP, blockSize: 16, maxTokens: 64, echo: true, decode: 12})
			if l.parallel.TP > f.Config.NumAttentionHeads {
				cfg.Parallel = l.parallel
				require.ErrorContains(t, cfg.Check(f.Config, l.parallel.Size()), "tp 8 > 6 attention heads")
				return
			}
			runPlan(t, f, l, cfg, p, nil, checkRows(t, f.Config.VocabSize))
		})
	}
}
