package engine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Every step with tokens is in one histogram, every agreement of a leader in the other.
func TestHistograms(t *testing.T) {
	for _, l := range layouts {
		r := start(t, config(l), time.Minute)
		for i := range 2 * l.dp {
			r.do(t, Request{IDs: prompt(i, 20), MaxTokens: 3, IgnoreEOS: true})
		}
		r.close(t)
		s := r.Stats()
		for i, x := range s.Replicas {
			require.Equal(t, uint64(x.Steps), x.StepTokens.Count(), "replica %d", i)
			require.EqualValues(t, x.ContextTokens+x.GenerationTokens, x.StepTokens.Sum)
			require.GreaterOrEqual(t, x.Sync.Count(), uint64(s.Steps), "and those before a sleep")
			require.Positive(t, x.Sync.Sum)
		}
		total := s.Total()
		require.Equal(t, uint64(total.Steps), total.StepTokens.Count())
		require.EqualValues(t, 2*l.dp*2, total.StepTokens.Counts[0], "two decode steps of one token each")
	}
	h := newHistogram([]float64{1, 8})
	for _, v := range []float64{0, 1, 1.5, 8, 8.5, 100} {
		h.add(v)
	}
	require.Equal(t, []uint64{2, 2, 2}, h.Counts, "a bound is in its class")
}
