package workload

import (
	"math"
	"slices"
	"time"
)

// Report is what a run measured.
type Report struct {
	NumRequests  int
	NumCorrect   int             // answers whose text is the expected one, byte for byte
	PromptTokens int             // over all requests, cached or not
	OutputTokens int             // over all requests
	Wall         time.Duration   // from the first request sent to the last one answered
	Latencies    []time.Duration // [NumRequests] from sent to answered, in request order
	P50, P99     time.Duration   // of Latencies; see Percentile
}

func newReport(requests []Request, results []Result, latencies []time.Duration, wall time.Duration) Report {
	r := Report{NumRequests: len(requests), Wall: wall, Latencies: latencies}
	for i, result := range results {
		r.PromptTokens += result.PromptTokens
		r.OutputTokens += result.OutputTokens
		if result.Text == requests[i].Expected {
			r.NumCorrect++
		}
	}
	r.P50, r.P99 = Percentile(latencies, 50), Percentile(latencies, 99)
	return r
}

// RequestsPerSecond returns answered requests a second of Wall; 0 for an empty run.
func (r Report) RequestsPerSecond() float64 { return perSecond(r.NumRequests, r.Wall) }

// PromptTokensPerSecond returns prompt tokens a second of Wall. Tokens that came
// from a prefix cache count, since the caller sent them.
func (r Report) PromptTokensPerSecond() float64 { return perSecond(r.PromptTokens, r.Wall) }

// Accuracy returns the share of right answers, from 0 to 1; 0 for an empty run.
func (r Report) Accuracy() float64 {
	if r.NumRequests == 0 {
		return 0
	}
	return float64(r.NumCorrect) / float64(r.NumRequests)
}

func perSecond(n int, wall time.Duration) float64 {
	if wall <= 0 {
		return 0
	}
	return float64(n) / wall.Seconds()
}

// Percentile returns the nearest-rank percentile: the smallest sample that at
// least percent of all samples do not exceed, which is sample ceil(percent / 100
// x n) of the sorted n, counted from 1. It is always one of the samples; below
// 100 samples the 99th is the largest. No sample gives 0. percent is clamped to
// (0, 100]; the samples may be in any order and stay as they are.
func Percentile(samples []time.Duration, percent float64) time.Duration {
	n := len(samples)
	if n == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(samples))
	rank := int(math.Ceil(percent * float64(n) / 100))
	return sorted[min(max(rank, 1), n)-1]
}
