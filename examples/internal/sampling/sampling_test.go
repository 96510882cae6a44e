package sampling

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

var inf = float32(math.Inf(1))
var nan = float32(math.NaN())

// drawLogits draws few different values, so that ties are common.
func drawLogits(t *rapid.T, n int) []float32 {
	z := make([]float32, n)
	for i := range z {
		z[i] = float32(rapid.IntRange(-12, 12).Draw(t, "z")) / 4
		if rapid.IntRange(0, 9).Draw(t, "mask") == 0 {
			z[i] = -inf
		}
	}
	z[rapid.IntRange(0, n-1).Draw(t, "some")] = 1
	return z
}

// sorted returns all ids, best first, by a full stable sort.
func sorted(z []float32) []int32 {
	ids := make([]int32, len(z))
	for i := range ids {
		ids[i] = int32(i)
	}
	slices.SortStableFunc(ids, func(a, b int32) int {
		switch {
		case z[a] > z[b]:
			return -1
		case z[a] < z[b]:
			return 1
		}
		return 0
	})
	return ids
}

func TestLogprobsAgainstFullSort(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		z := drawLogits(t, rapid.IntRange(1, 50).Draw(t, "vocab"))
		top := make([]TopLogprob, rapid.IntRange(0, 25).Draw(t, "k"))
		token := int32(rapid.IntRange(0, len(z)-1).Draw(t, "token"))
		lp, n, err := Logprobs(z, token, top)
		require.NoError(t, err)
		require.Equal(t, min(len(top), len(z)), n)
		sum := 0.0
		for _, v := range z {
			sum += math.Exp(float64(v))
		}
		ids := sorted(z)
		for i, e := range top[:n] {
			require.Equal(t, ids[i], e.ID)
			requireLogprob(t, float64(z[e.ID])-math.Log(sum), e.Logprob)
		}
		requireLogprob(t, float64(z[token])-math.Log(sum), lp)
		best, _, err := argmax(z)
		require.NoError(t, err)
		require.Equal(t, ids[0], best)
	})
}

func requireLogprob(t require.TestingT, want float64, got float32) {
	if math.IsInf(want, -1) {
		require.Equal(t, -inf, got)
		return
	}
	require.InDelta(t, want, got, 1e-6)
}

func TestLogprobsOfLargeLogits(t *testing.T) {
	for _, shift := range []float32{0, 1e4, -1e4, 3e38} {
		lp, n, err := Logprobs([]float32{shift, shift, shift, -inf}, 1, make([]TopLogprob, 20))
		require.NoError(t, err)
		require.Equal(t, 4, n)
		require.InDelta(t, -math.Log(3), lp, 1e-6)
	}
}

func TestNotFinite(t *testing.T) {
	for name, z := range map[string][]float32{
		"NaN first":     {nan, 1, 2},
		"NaN last":      {3, 1, nan},
		"NaN and +Inf":  {inf, nan},
		"+Inf":          {1, inf},
		"all -Inf":      {-inf, -inf},
		"all NaN":       {nan, nan},
		"-Inf then NaN": {-inf, nan},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := Logprobs(z, 0, nil)
			require.ErrorIs(t, err, ErrNotFinite)
			for _, p := range []Params{{}, {Temperature: 1}, {Temperature: 1, TopK: 1}, {PresencePenalty: 1},
				{LogitBias: []Bias{{0, -100}}}} {
				_, err := New(len(z)).Pick(z, &p, Context{Forbidden: []int32{0}})
				require.ErrorIs(t, err, ErrNotFinite, "%+v", p)
			}
		})
	}
	_, err := New(2).Pick([]float32{1, -inf}, &Params{}, Context{Forbidden: []int32{0}})
	require.ErrorIs(t, err, ErrNotFinite, "everything is forbidden")
}

func TestGreedyTakesLowestOfTies(t *testing.T) {
	got, err := New(4).Pick([]float32{1, 3, 3, 2}, &Params{}, Context{})
	require.NoError(t, err)
	require.EqualValues(t, 1, got)
}

// kept returns the candidates of a draw as a sorted list of ids.
func kept(z []float32, p Params) []int32 {
	s := New(len(z))
	_, best, _ := argmax(z)
	cand := s.candidates(z, best, &p)
	if p.TopP > 0 && p.TopP < 1 {
		cand = s.nucleus(cand, best, float64(p.Temperature), float64(p.TopP))
	}
	ids := make([]int32, len(cand))
	for i, w := range cand {
		ids[i] = w.id
	}
	slices.Sort(ids)
	return ids
}

func TestFiltersAgainstFullSort(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		z := drawLogits(t, rapid.IntRange(1, 40).Draw(t, "vocab"))
		p := Params{
			Temperature: float32(rapid.SampledFrom([]int{1, 2, 4}).Draw(t, "temperature")) / 2,
			TopK:        rapid.IntRange(-1, 45).Draw(t, "top_k"),
			TopP:        float32(rapid.IntRange(0, 16).Draw(t, "top_p")) / 16,
			MinP:        rapid.SampledFrom([]float32{0, 0.001, 0.03, 0.3, 0.9, 1}).Draw(t, "min_p"),
		}
		ids := sorted(z)
		prob := func(id int32) float64 { return math.Exp(float64(z[id]-z[ids[0]]) / float64(p.Temperature)) }
		var want []int32
		for i, id := range ids {
			if math.IsInf(float64(z[id]), -1) || prob(id) < float64(p.MinP) || p.TopK > 0 && i >= p.TopK {
				break
			}
			want = append(want, id)
		}
		if p.TopP > 0 && p.TopP < 1 {
			sum, reached := 0.0, 0.0
			for _, id := range want {
				sum += prob(id)
			}
			for i, id := range want {
				if reached += prob(id); reached >= sum*float64(p.TopP) {
					want = want[:i+1]
					break
				}
			}
		}
		slices.Sort(want)
		require.Equal(t, want, kept(z, p))
	})
}

// The share of each id over many positions is its probability.
func TestDrawsFollowTheDistribution(t *testing.T) {
	z := []float32{0, 1, 2, -1, -inf, 2}
	s := New(len(z))
	const n = 40000
	for _, p := range []Params{{Temperature: 1}, {Temperature: 2}, {Temperature: 1, TopK: 3}, {Temperature: 1, TopP: 0.8}} {
		t.Run(fmt.Sprintf("%+v", p), func(t *testing.T) {
			var count [6]float64
			for pos := range n {
				id, err := s.Pick(z, &p, Context{Seed: 11, Position: pos})
				require.NoError(t, err)
				count[id]++
			}
			sum := 0.0
			for _, id := range kept(z, p) {
				sum += math.Exp(float64(z[id] / p.Temperature))
			}
			for id := range z {
				want := 0.0
				if slices.Contains(kept(z, p), int32(id)) {
					want = math.Exp(float64(z[id]/p.Temperature)) / sum
				}
				require.InDelta(t, want, count[id]/n, 4*math.Sqrt(want*(1-want)/n)+1e-12, "id %d", id)
			}
		})
	}
}

func TestDrawDependsOnSeedAndPositionOnly(t *testing.T) {
	z := make([]float32, 200)
	p := Params{Temperature: 1, TopP: 0.95, PresencePenalty: 0.5, RepetitionPenalty: 1.1}
	run := func(s *Sampler, seed uint64) []int32 {
		var out []int32
		for pos := range 50 {
			id, err := s.Pick(z, &p, Context{Seed: seed, Position: pos, Prompt: []int32{3, 3, 4}, Output: out})
			require.NoError(t, err)
			out = append(out, id)
		}
		return out
	}
	used := New(len(z))
	want := run(used, 5)
	require.Equal(t, want, run(used, 5), "a sampler that was used before")
	require.Equal(t, want, run(New(len(z)), 5))
	require.NotEqual(t, want, run(used, 6))
}

func TestShape(t *testing.T) {
	s := New(6)
	z := []float32{2, -2, 4, 1, 1, 0}
	c := Context{Prompt: []int32{0, 1, 0}, Output: []int32{2, 2, 4}, Forbidden: []int32{5}}
	p := Params{RepetitionPenalty: 2, PresencePenalty: 0.5, FrequencyPenalty: 0.25, LogitBias: []Bias{{3, 10}, {1, -2}}}
	want := []float32{2. / 2, (-2 - 2) * 2, 4./2 - 0.5 - 2*0.25, 1 + 10, 1./2 - 0.5 - 0.25, -inf}
	require.Equal(t, want, s.shape(z, &p, c))
	require.Equal(t, want, s.shape(z, &p, c), "no counts are left over")
	require.Equal(t, []float32{2, -2, 4, 1, 1, 0}, z, "raw logits are left alone")
	got, err := s.Pick(z, &p, c)
	require.NoError(t, err)
	require.EqualValues(t, 3, got)
}

func TestValidate(t *testing.T) {
	ok := Params{Temperature: 0.7, TopK: -1, TopP: 1, MinP: 0.1, RepetitionPenalty: 1, LogitBias: []Bias{{9, -100}}}
	require.NoError(t, ok.Validate(10))
	require.NoError(t, (&Params{}).Validate(10))
	for text, p := range map[string]Params{
		"temperature -1":           {Temperature: -1},
		"temperature NaN":          {Temperature: nan},
		"temperature +Inf":         {Temperature: inf},
		"top_k -2":                 {TopK: -2},
		"top_p 1.5":                {TopP: 1.5},
		"top_p NaN":                {TopP: nan},
		"min_p -0.5":               {MinP: -0.5},
		"repetition_penalty -1":    {RepetitionPenalty: -1},
		"presence_penalty 3":       {PresencePenalty: 3},
		"frequency_penalty NaN":    {FrequencyPenalty: nan},
		"logit_bias of id 10":      {LogitBias: []Bias{{10, 1}}},
		"logit_bias of id -1":      {LogitBias: []Bias{{-1, 1}}},
		"logit_bias has id 4 twi":  {LogitBias: []Bias{{4, 1}, {4, 2}}},
		"logit_bias 101 of id 4 i": {LogitBias: []Bias{{4, 101}}},
	} {
		require.ErrorContains(t, p.Validate(10), text)
	}
}

func TestNoAllocations(t *testing.T) {
	z := make([]float32, 2048)
	for i := range z {
		z[i] = rand.Float32()
	}
	s, top := New(len(z)), make([]TopLogprob, 20)
	p := Params{Temperature: 1, TopP: 0.9, RepetitionPenalty: 1.2}
	require.Zero(t, testing.AllocsPerRun(20, func() {
		_, _ = s.Pick(z, &p, Context{Prompt: []int32{1, 2}})
		_, _, _ = Logprobs(z, 1, top)
	}))
}

func BenchmarkRow(b *testing.B) {
	for _, vocab := range []int{2048, 151936} {
		z := make([]float32, vocab)
		for i := range z {
			z[i] = float32(rand.NormFloat64()) * 3
		}
		s, top := New(vocab), make([]TopLogprob, 20)
		run := func(name string, f func()) {
			b.Run(fmt.Sprintf("%s/vocab%d", name, vocab), func(b *testing.B) {
				for b.Loop() {
					f()
				}
			})
		}
		run("greedy", func() { _, _ = s.Pick(z, &Params{}, Context{}) })
		run("logprobs20", func() { _, _, _ = Logprobs(z, 0, top) })
		run("temperature", func() { _, _ = s.Pick(z, &Params{Temperature: 1}, Context{}) })
		run("top_p", func() { _, _ = s.Pick(z, &Params{Temperature: 1, TopP: 0.9}, Context{}) })
		run("top_k50", func() { _, _ = s.Pick(z, &Params{Temperature: 1, TopK: 50}, Context{}) })
	}
}

func TestExpNeg(t *testing.T) {
	for x := 0.0; x > -699; x -= 0.00731 {
		if want, got := math.Exp(x), expNeg(x); math.Abs(got-want) > 1e-10*want {
			require.Equal(t, want, got, "x = %v", x)
		}
	}
	require.Zero(t, expNeg(-701))
	require.Zero(t, expNeg(math.Inf(-1)))
	require.EqualValues(t, 1, expNeg(0))
}
