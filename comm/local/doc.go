// Package local is the CPU driver: the ranks of a world are goroutines of this process and read each other's buffers
// directly.
//
// A collective is two meetings with the work between them. Before the first, each rank publishes its call. The last one to
// arrive compares the calls and lets everyone go; then each rank does its share, reading all inputs and writing all outputs
// that its share touches; the second meeting says that nobody reads anybody's buffers any more.
//
//	rank 0  publish ─┐          ┌─ slice 0 of all inputs -> all outputs ─┐          ┌─ return
//	rank 1  publish ─┼─ meet ───┼─ slice 1 of all inputs -> all outputs ─┼─ meet ───┼─ return
//	rank 2  publish ─┘ (compare)└─ slice 2 of all inputs -> all outputs ─┘          └─ return
//
// Small calls need no second meeting. If every rank can have a core, each brings a copy of its input to the first meeting, a few cache
// lines that the others fetch at once, and makes its own result from the copies. If ranks share cores, the last to arrive does
// the whole call and then lets the others go: giving up a core costs more than the work. Shares of larger calls are:
//
//	all_reduce                  whole cache lines, 1/P of the elements: reads P inputs, writes P outputs
//	all_gather(v), alltoallv    what this rank receives
//	reduce_scatter(v)           the rows this rank receives
//	broadcast, reduce           a rank that is not the root copies; the root adds
//
// Sums are taken in fp32, in rank order, from +0, and rounded once to the payload type; integers wrap in their own width.
// Prod, Min and Max of floats are taken in fp32 too, in rank order from rank 0's value; a NaN of any rank wins. Since the
// order does not depend on who adds, the uniform and the ragged forms give the same bits.
//
// # Waiting
//
// A rank that waits spins for some 15 us if every rank can have a core of its own, then yields its core a few times, then parks on
// a channel: 64 ranks on two cores make progress, and an idle world costs nothing. A large share spreads over cores that
// are idle (internal/par). Results of many megabytes go past the caches, which saves reading the memory they replace.
//
// # When something goes wrong
//
// Calls that do not match give [comm.Invalid] on every rank, naming two ranks and both calls; nothing is written, and the
// world stays usable. A rank that does not come within the timeout gives [comm.Timeout] on all that wait, and the world is
// dead. Only the first meeting can end early: once all ranks have come, a call runs to its end on all of them, even when
// the world dies meanwhile. So when a call returns, with or without an error, no other rank touches its buffers.
package local
