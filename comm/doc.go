// Package comm says what a rank, a world, a buffer, a stream, a collective and an error are.
//
// A [World] is a set of ranks; a [Comm] is one rank's handle in it. A rank is a goroutine, and several may share one
// device: eight ranks on a laptop CPU, eight on one GPU, one on each of eight GPUs. [World.Run] starts one goroutine
// a rank and waits for all of them.
//
//	World ── Comm (rank 0) ── Conn ─┐
//	      ├─ Comm (rank 1) ── Conn ─┤  a driver: comm/local, comm/p2p, nccl/ncclworld
//	      └─ Comm (rank 2) ── Conn ─┘
//
// Each collective of a Comm fills an [Op] and passes it to [Comm.Do], the one place that validates, counts and traces.
// A driver implements [Conn], six methods; what it cannot do it answers with [Unavailable].
//
// Data is a [Buffer]: a typed row-major view [rows, cols] with a row stride, of a Go slice ([Of]) or of device memory
// ([At]). The ragged collectives (AllGatherV, ReduceScatterV, AllToAllV) take rows per rank as [Counts], any of them
// zero, and several tensors ([Part]) in one call.
//
// # Order of sums
//
// Drivers comm/local and comm/p2p add in fp32, in rank order, from +0, and round once to the payload type; integers wrap.
// The uniform and the ragged form of an operation give the same bits. Prod, Min and Max of floats are taken in fp32 too,
// beginning with rank 0's value; Min and Max are NaN where any rank has NaN. Which NaN comes out is not specified.
//
// # Errors
//
// Every error of a collective is an [*Error] with a [Code]: errors.Is(err, comm.Timeout). A wait that outlasts the world's
// timeout names the rank it waited for. After Timeout or Remote the world is dead, and every later call says so. What one
// rank can see to be wrong (shapes, counts, overlapping buffers) fails on that rank before it waits; calls of ranks that
// do not match fail on all of them. Errors name ranks by their number in the world, in groups made by Split too.
// The ranks that are left when one is gone go on in another world: [World.Without].
package comm
