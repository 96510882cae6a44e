// Package local is the CPU driver: the ranks of a world are goroutines of this process and read each other's buffers
// directly.
//
// A collective is two meetings with the work between them. Before the first, each rank publishes its call. When all have come, the
// calls are compared; then each rank does its share, reading all inputs and writing all outputs that its share touches; the second
// meeting says that nobody reads anybody's buffers any more.
//
//	rank 0  publish ─┐          ┌─ slice 0 of all inputs -> all outputs ─┐          ┌─ return
//	rank 1  publish ─┼─ meet ───┼─ slice 1 of all inputs -> all outputs ─┼─ meet ───┼─ return
//	rank 2  publish ─┘ (compare)└─ slice 2 of all inputs -> all outputs ─┘          └─ return
//
// Where every rank can have a core, a meeting is a cache line each: a rank writes the number of the call, its signature and where
// its buffers are into a line of its own and looks at the others' lines. Small calls need no second meeting: each rank puts a copy of
// its input behind that line, up to 24 bytes of it into the line itself, and makes its own result from the copies. Two lines take
// turns, and a rank uses one again only when all have come to the call between.
//
// Where ranks share cores, giving up a core costs more than the work. There the last to arrive compares the calls, does a small one whole
// and lets the others go; of a large one, who has a core takes one share after the other, whosever it is, and who gets a core late
// finds nothing to do. Shares are:
//
//	all_reduce                  whole cache lines, 1/P of the elements: reads P inputs, writes P outputs
//	all_gather(v)               what this rank receives
//	alltoallv, reduce_scatter(v) what this rank receives; where one receives more than its part, an even part of everything
//	broadcast, reduce           a rank that is not the root copies; the root adds
//
// Programs repeat their calls. What a rank works out of a call (signature, offsets, bytes) it keeps for the next call of the same
// shape ([comm.Op] Shape), which may differ in addresses only.
//
// Sums are taken in fp32, in rank order, from +0, and rounded once to the payload type; integers wrap in their own width.
// Prod, Min and Max of floats are taken in fp32 too, in rank order from rank 0's value; a NaN of any rank wins. Since the
// order does not depend on who adds, the uniform and the ragged forms give the same bits.
//
// # Waiting
//
// A rank that waits looks some 200 times, then spins with pauses for some 15 us, then yields its core a few times, then parks on
// a channel: 64 ranks on two cores make progress, and an idle world costs nothing. A rank that yields or parks says so, and nobody
// spins for one that did: it may need the core. A large share spreads over cores that are idle (internal/par). Results of many
// megabytes go past the caches, which saves reading the memory they replace.
//
// # When something goes wrong
//
// Calls that do not match give [comm.Invalid] on every rank, naming two ranks and both calls; nothing is written, and the
// world stays usable. A rank that does not come within the timeout gives [comm.Timeout] on all that wait, and the world is
// dead. Only the first meeting can end early: once all ranks have come, a call runs to its end on all of them, even when
// the world dies meanwhile. So when a call returns, with or without an error, no other rank touches its buffers.
package local
