// Package trace records what each rank does when: spans, the share of computing,
// communicating and waiting, and a file that Perfetto opens.
//
// A [Recorder] has one [Lane] for each rank (and more for further streams). The
// rank's goroutine opens and closes spans on its lane, and they nest:
//
//	rank 0  |---- execute_context_2(700)_generation_3(3) ----|      |- dummy_step -|
//	          |attention| |all_reduce| |experts| |all_reduce|
//	                        ^^^^^ wait                  ^^ wait
//	time ──> compute where no collective is open; idle where no span is open
//
// # The breakdown
//
// Each span has a [Kind], and a span's self time is its duration less that of the
// spans directly inside it. So every moment of a lane counts once:
//
//   - compute: self time of Compute and Step spans, which is all time in a step
//     outside of its collectives and waits (bookkeeping between kernels too);
//   - collective: self time of Collective spans less the wait inside them: moving
//     and adding up data;
//   - wait: waiting for other ranks: the wait that a collective reports, and self
//     time of Wait spans (such as the agreement before a step);
//   - idle: the window less the other three. The window is the same for all lanes:
//     from the first span's begin to the last span's end on any lane.
//
// Busy time is compute + collective + wait, so a rank that waits in a collective
// is busy and one that has no step is idle. Times are of the clock on the wall:
// where ranks outnumber cores, a goroutine that is ready but has no core spends
// that time in whatever span it is in.
//
// Launches, bytes and waits of collectives come from package comm: a Recorder is a
// [comm.Tracer].
//
// # Cost
//
// A nil *Recorder and a nil *Lane are valid and record nothing: a call costs a
// nil check. With [Totals] only sums are kept. Otherwise a span takes a slot of a
// chunked buffer that grows up to [MaxEvents] a lane; later spans are left out of
// the file, counted, and reported there, while the sums go on.
package trace
