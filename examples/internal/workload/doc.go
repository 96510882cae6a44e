// Package workload is the load of a reward judge: many long prompts, four
// output tokens each, a fixed number of them in flight.
//
//	posting A + candidate 0 ┐
//	posting A + candidate 1 │   Requests(profile, seed)         Run
//	posting A + candidate 2 ├─> a list, the same every time ──> concurrency callers, each sends its
//	posting A + candidate 3 │                                   next request when its last one is
//	posting B + candidate 0 ┘                                   answered (a closed loop) ──> Report
//	...
//
// Candidates of one posting follow each other, so that with a prefix cache the
// posting is computed once. Prefill dominates: a prompt has hundreds to
// thousands of tokens, an answer four. Answers are known, so a run measures
// accuracy beside speed.
//
// The package knows no engine: Run calls a function. That is how its own tests
// run it, with a made-up engine in synthetic time.
package workload
