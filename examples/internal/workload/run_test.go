package workload

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// numbered returns n requests whose right answer is "yes".
func numbered(n int) []Request {
	requests := make([]Request, n)
	for i := range requests {
		requests[i] = Request{Expected: "yes", Posting: i}
	}
	return requests
}

// An engine that takes a second a request, ten requests, four callers: rounds
// of 4, 4 and 2.
func TestRunIsAClosedLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var inFlight, most atomic.Int64
		var progress []int
		submit := func(_ context.Context, i int, r Request) (Result, error) {
			if n := inFlight.Add(1); n > most.Load() {
				most.Store(n)
			}
			defer inFlight.Add(-1)
			require.Equal(t, i, r.Posting)
			time.Sleep(time.Second)
			text := "yes"
			if i == 3 {
				text = "no"
			}
			return Result{Text: text, PromptTokens: 100 + i, OutputTokens: 4}, nil
		}
		report, err := Run(t.Context(), numbered(10), 4, submit, func(done int) { progress = append(progress, done) })
		require.NoError(t, err)
		require.EqualValues(t, 4, most.Load())
		require.Equal(t, []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, progress)
		require.Equal(t, 3*time.Second, report.Wall)
		require.Equal(t, 10, report.NumRequests)
		require.Equal(t, 9, report.NumCorrect)
		require.Equal(t, 0.9, report.Accuracy())
		require.Equal(t, 1045, report.PromptTokens)
		require.Equal(t, 40, report.OutputTokens)
		require.Equal(t, 10.0/3, report.RequestsPerSecond())
		require.Equal(t, 1045.0/3, report.PromptTokensPerSecond())
	})
}

// Latency is each request's own, from sent to answered: time spent before a
// caller was free is not part of it.
func TestLatenciesAreInRequestOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		submit := func(_ context.Context, i int, _ Request) (Result, error) {
			time.Sleep(time.Duration(10-i) * time.Millisecond)
			return Result{}, nil
		}
		report, err := Run(t.Context(), numbered(4), 2, submit, nil)
		require.NoError(t, err)
		ms := time.Millisecond
		require.Equal(t, []time.Duration{10 * ms, 9 * ms, 8 * ms, 7 * ms}, report.Latencies)
		require.Equal(t, 8*ms, report.P50)
		require.Equal(t, 10*ms, report.P99)
		require.Equal(t, 17*ms, report.Wall) // 10 + 7 on one caller, 9 + 8 on the other
	})
}

func TestAnErrorEndsTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("out of blocks")
		var sent atomic.Int64
		submit := func(ctx context.Context, i int, _ Request) (Result, error) {
			sent.Add(1)
			if i == 2 {
				time.Sleep(time.Second)
				return Result{}, broken
			}
			select {
			case <-time.After(time.Hour):
				return Result{}, nil
			case <-ctx.Done():
				return Result{}, ctx.Err()
			}
		}
		start := time.Now()
		_, err := Run(t.Context(), numbered(10), 4, submit, nil)
		require.ErrorIs(t, err, broken)
		require.EqualError(t, err, "workload: request 2 of 10: out of blocks")
		require.Equal(t, time.Second, time.Since(start), "the others must not be waited out")
		require.EqualValues(t, 4, sent.Load())
	})
}

func TestTheCallersContextEndsTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
		defer cancel()
		submit := func(context.Context, int, Request) (Result, error) { // deaf to ctx
			time.Sleep(time.Minute)
			return Result{}, nil
		}
		var done int
		_, err := Run(ctx, numbered(100), 2, submit, func(n int) { done = n })
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, 4, done, "the calls under way at the deadline are the last ones")

		_, err = Run(ctx, numbered(1), 1, nil, nil) // already over: nothing is sent
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
}

func TestRunOfNothing(t *testing.T) {
	report, err := Run(t.Context(), nil, 3, nil, nil)
	require.NoError(t, err)
	require.Zero(t, report.NumRequests)
	require.Zero(t, report.Accuracy())
	require.Zero(t, report.P99)
	require.Zero(t, Report{}.RequestsPerSecond())

	_, err = Run(t.Context(), numbered(1), 0, nil, nil)
	require.EqualError(t, err, "workload: concurrency 0 < 1")
}
