package moe

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// naiveRoute is the router written for reading: float64, one sort.
func naiveRoute(cfg Config, bias []float32, logits []float32) (ids []int32, weights []float64) {
	scores := make([]float64, len(logits))
	sum := 0.0
	for e, v := range logits {
		if cfg.Scoring == Sigmoid {
			scores[e] = 1 / (1 + math.Exp(-float64(v)))
			continue
		}
		scores[e] = math.Exp(float64(v) - float64(slices.Max(logits)))
		sum += scores[e]
	}
	choice := make([]float64, len(logits))
	for e := range scores {
		if cfg.Scoring == Softmax {
			scores[e] /= sum
		}
		choice[e] = scores[e]
		if bias != nil {
			choice[e] += float64(bias[e])
		}
	}
	allowed := func(int) bool { return true }
	if cfg.TopKGroups > 0 {
		size := len(logits) / cfg.NumGroups
		score := make([]float64, cfg.NumGroups)
		order := make([]int, cfg.NumGroups)
		for g := range order {
			c := slices.Clone(choice[g*size : (g+1)*size])
			slices.Sort(c)
			score[g], order[g] = c[size-1], g
			if cfg.TopKMethod == NoAuxTC && size > 1 {
				score[g] += c[size-2]
			}
		}
		slices.SortStableFunc(order, func(a, b int) int { return compare(score[b], score[a]) })
		allowed = func(e int) bool { return slices.Contains(order[:cfg.TopKGroups], e/size) }
	}
	var order []int
	for e := range choice {
		if allowed(e) {
			order = append(order, e)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return compare(choice[b], choice[a]) })
	total := 0.0
	for _, e := range order[:cfg.TopK] {
		ids, weights = append(ids, int32(e)), append(weights, scores[e])
		total += scores[e]
	}
	for i := range weights {
		if cfg.Renormalize {
			weights[i] /= total
		}
		if cfg.Scale != 0 {
			weights[i] *= float64(cfg.Scale)
		}
	}
	return ids, weights
}

// compare takes scores that differ by rounding only as equal; the inputs below are far apart or equal.
func compare(a, b float64) int {
	switch {
	case math.Abs(a-b) < 1e-6:
		return 0
	case a < b:
		return -1
	}
	return 1
}

// routeLogits runs the router on given logits: the router's weight is the identity.
func routeLogits(cfg Config, bias, logits []float32) (ids []int32, weights []float32) {
	n := cfg.NumExperts
	cfg.Hidden = n
	eye := make([]float32, n*n)
	for i := range n {
		eye[i*n+i] = 1
	}
	r := newRouter(cfg, Weights{Router: eye, Bias: bias})
	numTokens := len(logits) / n
	ids, weights = make([]int32, numTokens*cfg.TopK), make([]float32, numTokens*cfg.TopK)
	r.route(new(Workspace), ids, weights, logits, numTokens)
	return ids, weights
}

func TestRouterAgainstNaive(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(1, 6).Draw(t, "group size")
		cfg := Config{
			NumGroups: rapid.IntRange(1, 8).Draw(t, "groups"), Scoring: Scoring(rapid.IntRange(0, 1).Draw(t, "scoring")),
			Renormalize: rapid.Bool().Draw(t, "renormalize"), Scale: float32(rapid.IntRange(0, 3).Draw(t, "scale")),
			TopKMethod: TopKMethod(rapid.IntRange(0, 1).Draw(t, "method")),
		}
		cfg.NumExperts = cfg.NumGroups * size
		most := cfg.NumExperts
		if rapid.Bool().Draw(t, "limited") {
			cfg.TopKGroups = rapid.IntRange(1, cfg.NumGroups).Draw(t, "top groups")
			most = cfg.TopKGroups * size
		}
		cfg.TopK = rapid.IntRange(1, most).Draw(t, "k")
		var bias []float32
		if rapid.Bool().Draw(t, "with bias") {
			// one for each group, so that sums which are equal are so in float32 too
			for range cfg.NumGroups {
				b := float32(rapid.IntRange(-4, 4).Draw(t, "bias"))
				for range size {
					bias = append(bias, b)
				}
			}
		}
		// few different values, so that there are ties; far apart, so that rounding decides nothing
		numTokens := rapid.IntRange(0, 3).Draw(t, "tokens")
		logits := make([]float32, numTokens*cfg.NumExperts)
		for i := range logits {
			logits[i] = float32(rapid.IntRange(0, 5).Draw(t, "logit")) // not negative: sigmoid(-2) + sigmoid(2) = 2 sigmoid(0)
		}
		ids, weights := routeLogits(cfg, bias, logits)
		for i := range numTokens {
			row := logits[i*cfg.NumExperts : (i+1)*cfg.NumExperts]
			wantIDs, want := naiveRoute(cfg, bias, row)
			require.Equal(t, wantIDs, ids[i*cfg.TopK:(i+1)*cfg.TopK])
			for j, w := range want {
				require.InDelta(t, w, weights[i*cfg.TopK+j], 1e-5)
			}
		}
	})
}

func TestRouterTiesTakeTheLowerID(t *testing.T) {
	ids, weights := routeLogits(Config{NumExperts: 5, TopK: 3, Renormalize: true}, nil, []float32{1, 2, 2, 1, 2})
	require.Equal(t, []int32{1, 2, 4}, ids)
	require.Equal(t, weights[0], weights[2])
	ids, _ = routeLogits(Config{NumExperts: 4, TopK: 4}, nil, []float32{7, 7, 7, 7})
	require.Equal(t, []int32{0, 1, 2, 3}, ids)
}

func TestRouterWithoutRenormalizingStillSoftmaxes(t *testing.T) {
	_, weights := routeLogits(Config{NumExperts: 2, TopK: 1}, nil, []float32{0, float32(math.Log(3))})
	require.InDelta(t, 0.75, weights[0], 1e-6)
	_, weights = routeLogits(Config{NumExperts: 2, TopK: 1, Scale: 2}, nil, []float32{0, float32(math.Log(3))})
	require.InDelta(t, 1.5, weights[0], 1e-6)
}

func TestRouterBiasChoosesButDoesNotWeigh(t *testing.T) {
	cfg := Config{NumExperts: 3, TopK: 1, Scoring: Sigmoid}
	ids, weights := routeLogits(cfg, []float32{10, 0, 0}, []float32{0, 5, 5})
	require.Equal(t, []int32{0}, ids)
	require.InDelta(t, 0.5, weights[0], 1e-6)
}

func TestRouterGroups(t *testing.T) {
	logits := []float32{3, -9, 2, 2} // group 0 has the best expert, group 1 the best two
	ids, _ := routeLogits(Config{NumExperts: 4, TopK: 2, NumGroups: 2, TopKGroups: 1, Scoring: Sigmoid}, nil, logits)
	require.Equal(t, []int32{2, 3}, ids)
	ids, _ = routeLogits(Config{NumExperts: 4, TopK: 2, NumGroups: 2, TopKGroups: 1, Scoring: Sigmoid, TopKMethod: GroupLimitedGreedy}, nil, logits)
	require.Equal(t, []int32{0, 1}, ids)
}

func TestRouterNaNTouchesItsRowOnly(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for _, cfg := range []Config{
		{NumExperts: 4, TopK: 2, Renormalize: true},
		{NumExperts: 4, TopK: 2, NumGroups: 2, TopKGroups: 1},
		{NumExperts: 4, TopK: 2, Scoring: Sigmoid},
	} {
		good := []float32{1, 2, 3, 4}
		want, wantWeights := routeLogits(cfg, nil, good)
		logits := slices.Concat(good, []float32{nan, nan, nan, nan}, good, []float32{inf, -inf, nan, 0}, good)
		ids, weights := routeLogits(cfg, nil, logits)
		for _, row := range []int{0, 2, 4} {
			require.Equal(t, want, ids[row*2:row*2+2])
			require.Equal(t, wantWeights, weights[row*2:row*2+2])
		}
		require.Equal(t, []int32{0, 1}, ids[2:4], "a row of NaN chooses the lowest ids")
		require.True(t, math.IsNaN(float64(weights[2])) && math.IsNaN(float64(weights[3])))
		require.NotEqual(t, ids[6], ids[7])
	}
}

func TestRouterRowsDoNotDependOnTheBatch(t *testing.T) {
	cfg := Config{NumExperts: 32, TopK: 4, Renormalize: true}
	logits := make([]float32, 200*32)
	for i := range logits {
		logits[i] = float32(math.Sin(float64(i) * 1.7))
	}
	ids, weights := routeLogits(cfg, nil, logits)
	for row := range 200 {
		i, w := routeLogits(cfg, nil, logits[row*32:(row+1)*32])
		require.Equal(t, i, ids[row*4:row*4+4])
		require.Equal(t, w, weights[row*4:row*4+4])
	}
}
