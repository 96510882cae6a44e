package workload

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// Result is what an engine answers.
type Result struct {
	Text         string // the completion without its end-of-turn token
	PromptTokens int    // tokens of the prompt
	OutputTokens int    // tokens generated, the end-of-turn token included
}

// Submit sends request i and returns when it is answered. It is called from
// many goroutines at once and should return early when ctx ends.
type Submit func(ctx context.Context, i int, r Request) (Result, error)

// Run sends the requests in order, concurrency of them in flight: a closed loop,
// in which each answer makes room for the next request. It returns when the last
// one is answered.
//
// The first error ends the run: ctx is cancelled for the others, no further
// request is sent, and Run returns that error with the request's number once all
// calls of submit have returned. The end of the caller's ctx does the same.
//
// progress, if not nil, is called after each answer with the number of answers
// so far, one call at a time and in order; it should be quick.
func Run(ctx context.Context, requests []Request, concurrency int, submit Submit, progress func(done int)) (Report, error) {
	if concurrency < 1 {
		return Report{}, fmt.Errorf("workload: concurrency %d < 1", concurrency)
	}
	if err := ctx.Err(); err != nil {
		return Report{}, fmt.Errorf("workload: not started: %w", err)
	}
	var (
		next      atomic.Int64
		mu        sync.Mutex // held over done and the calls of progress
		done      int
		results   = make([]Result, len(requests))
		latencies = make([]time.Duration, len(requests))
	)
	start := time.Now()
	g, ctx := errgroup.WithContext(ctx)
	for range min(concurrency, len(requests)) {
		g.Go(func() error {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(requests) {
					return nil
				}
				if err := ctx.Err(); err != nil {
					return fmt.Errorf("workload: request %d of %d not sent: %w", i, len(requests), err)
				}
				sent := time.Now()
				result, err := submit(ctx, i, requests[i])
				if err != nil {
					return fmt.Errorf("workload: request %d of %d: %w", i, len(requests), err)
				}
				results[i], latencies[i] = result, time.Since(sent)
				mu.Lock()
				done++
				if progress != nil {
					progress(done)
				}
				mu.Unlock()
			}
		})
	}
	if err := g.Wait(); err != nil {
		return Report{}, err
	}
	return newReport(requests, results, latencies, time.Since(start)), nil
}
