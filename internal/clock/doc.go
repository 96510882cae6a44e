// Package clock measures short spans. Where the processor has an invariant time stamp counter it reads that, for a fifth
// of the price of time.Now; elsewhere it asks the time package.
//
//	begin := clock.Read()
//	...
//	d := begin.Elapsed() // time.Duration
//
// The counter's rate is found by comparing it with time.Now from the start of the process on; it is settled once 50 ms have
// passed, and a span measured before that is right to a fraction of a percent if the process is older than a few
// milliseconds. Spans are for statistics: deadlines need time.Now, which tests can fake and which other clocks agree with.
package clock
