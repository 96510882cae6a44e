package workload

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/weftgo/weft/examples/internal/prompts"
	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRequestsShareAPostingByFours(t *testing.T) {
	requests, err := Requests(Short, 7)
	require.NoError(t, err)
	require.Len(t, requests, 32)
	asked := make(map[int]int) // candidate -> requests of it with top-20
	for i, r := range requests {
		require.Equal(t, i/4, r.Posting)
		require.Equal(t, i%4, r.Candidate)
		require.Equal(t, MaxTokens, r.MaxTokens)
		if r.TopLogprobs > 0 {
			require.Equal(t, TopLogprobs, r.TopLogprobs)
			asked[r.Candidate]++
		}
	}
	require.Equal(t, map[int]int{0: 2, 1: 2, 2: 2, 3: 2}, asked)

	for i := range 8 {
		four := requests[4*i : 4*i+4]
		shared := commonPrefix(four[0].Prompt, four[1].Prompt, four[2].Prompt, four[3].Prompt)
		require.Contains(t, four[0].Prompt[:shared], "\nCANDIDATE SUMMARY\nName: ")
	}
	// Another posting is another text.
	require.Less(t, commonPrefix(requests[0].Prompt, requests[4].Prompt), 100)
}

func commonPrefix(texts ...string) int {
	n := 0
	for ; ; n++ {
		for _, text := range texts {
			if n == len(text) || text[n] != texts[0][n] {
				return n
			}
		}
	}
}

func TestRequestsDependOnTheirArgumentsAlone(t *testing.T) {
	a, err := Requests(Short, 7)
	require.NoError(t, err)
	b, err := Requests(Short, 7)
	require.NoError(t, err)
	require.Equal(t, a, b)

	more := Short
	more.NumRequests = 45
	c, err := Requests(more, 7)
	require.NoError(t, err)
	require.Len(t, c, 45)
	require.Equal(t, a, c[:32], "a longer load begins like a shorter one")

	d, err := Requests(Short, 8)
	require.NoError(t, err)
	require.NotEqual(t, a[0].Prompt, d[0].Prompt)
}

// Requests are the generator's text for seeds that the model was not trained on.
func TestRequestsAreHeldOut(t *testing.T) {
	rng := prompts.NewRng(7)
	requests, err := Requests(Short, 7)
	require.NoError(t, err)
	for i := 0; i < len(requests); i += 4 {
		words := 240 + rng.Below(351)
		seed := rng.Next() >> 32
		require.Less(t, seed, uint64(1)<<32)
		family := prompts.Group(seed, words)
		for j := range 4 {
			require.Equal(t, family.Prompt(j), requests[i+j].Prompt)
			require.Equal(t, prompts.Answer(family.Candidates[j].Count), requests[i+j].Expected)
		}
	}
}

func TestProfiles(t *testing.T) {
	for _, want := range []Profile{Short, Article} {
		got, err := ByName(want.Name)
		require.NoError(t, err)
		require.Equal(t, want, got)
		require.NoError(t, got.Validate())
	}
	_, err := ByName("long")
	require.EqualError(t, err, `workload: no profile "long": use "short" or "article"`)

	_, err = Requests(Profile{NumRequests: -1, MinWords: 3, MaxWords: 2}, 0)
	require.EqualError(t, err, "workload: NumRequests -1 < 0\nworkload: Concurrency 0 < 1\n"+
		"workload: words from 3 to 2: want 0 <= MinWords <= MaxWords")

	none, err := Requests(Profile{Concurrency: 1}, 0)
	require.NoError(t, err)
	require.Empty(t, none)
}

func TestPercentileIsNearestRank(t *testing.T) {
	hundred := make([]time.Duration, 100)
	for i := range hundred {
		hundred[i] = time.Duration(100 - i) // 100 down to 1
	}
	for _, c := range []struct {
		samples []time.Duration
		percent float64
		want    time.Duration
	}{
		{nil, 50, 0},
		{[]time.Duration{9}, 1, 9},
		{[]time.Duration{9}, 99, 9},
		{[]time.Duration{4, 1, 3, 2}, 50, 2},
		{[]time.Duration{4, 1, 3, 2}, 51, 3},
		{[]time.Duration{4, 1, 3, 2}, 100, 4},
		{[]time.Duration{4, 1, 3, 2}, 0, 1},
		{hundred, 50, 50},
		{hundred, 99, 99},
		{hundred, 99.5, 100},
		{hundred, 200, 100},
	} {
		require.Equal(t, c.want, Percentile(c.samples, c.percent), "%v at %v", c.samples, c.percent)
	}
	require.Equal(t, time.Duration(100), hundred[0], "the samples stay in their order")
}

// The definition itself: at least percent of the samples do not exceed the
// result, and that is not so of any smaller sample.
func TestPercentileDefinition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		raw := rapid.SliceOfN(rapid.IntRange(0, 20), 1, 60).Draw(t, "samples")
		percent := rapid.IntRange(1, 100).Draw(t, "percent")
		samples := make([]time.Duration, len(raw))
		for i, x := range raw {
			samples[i] = time.Duration(x)
		}
		atMost := func(d time.Duration) (n int) {
			for _, s := range samples {
				if s <= d {
					n++
				}
			}
			return n
		}
		got := Percentile(samples, float64(percent))
		require.Contains(t, samples, got)
		require.GreaterOrEqual(t, 100*atMost(got), percent*len(samples))
		require.Less(t, 100*atMost(got-1), percent*len(samples))
	})
}
