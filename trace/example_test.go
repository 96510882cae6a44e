package trace_test

import (
	"fmt"
	"time"

	"github.com/weftgo/weft/trace"
)

// Two ranks of one step. Rank 1 comes late to the all-reduce, so rank 0 waits.
// (The times are given here, to print the same every time; a program would use
// Begin and End around its work.)
func Example() {
	const ms = time.Millisecond
	r := trace.New(2)
	for rank, late := range []time.Duration{0, 2 * ms} {
		lane := r.Rank(rank)
		lane.Record(trace.Compute, "experts", 0, 6*ms+late)
		lane.Collective("all_reduce", 6*ms+late, 4*ms-late, 2*ms-late, 4096)
	}
	for _, b := range r.Breakdown() {
		fmt.Println(b)
	}
	for _, t := range r.ByName() {
		fmt.Println(t.Kind, t.Name, t.Count, t.Self, t.Wait)
	}
	fmt.Println(trace.StepName(87, 111606, 112, 112))
	// Output:
	// rank 0: compute 60.0%, collective 20.0%, wait 20.0% of 10ms busy; idle 0s
	// rank 1: compute 80.0%, collective 20.0%, wait 0.0% of 10ms busy; idle 0s
	// compute experts 2 14ms 0s
	// collective all_reduce 2 4ms 2ms
	// execute_context_87(111606)_generation_112(112)
}
