// Package p2p is the GPU driver: weft's own kernels over memory that all ranks address. Ranks are goroutines of this
// process, or of several that each open their part of a world; several may share a GPU.
//
//	rank's goroutine                          rank's stream
//	Do: note the call in the log ── launch ──► kernel: publish pointers and shapes to all peers,
//	    (nobody waits for anybody)                     wait for theirs, compare, move or add, meet again
//	Wait: poll the stream, read the record ◄── an error is a record in pinned host memory
//
// Every operation is one launch, and every pointer goes through the table that the launch publishes, so any buffer of a
// rank's device is used where it lies: nothing is staged. On several GPUs buffers must be memory that peers can address:
// memory of comm.Alloc or symm.Alloc, or cuMemAlloc's, for which Open enables peer access.
//
// Sums are fp32 in rank order from +0, rounded once, as in package comm/local, with the same bits.
//
// How many blocks an operation gets, and whether a small all-reduce goes in one trip, follows from its size by rules, or by a
// table that Tune measures and stores: WEFT_TUNE=run lets Open do it once for a kind of machine and world. Results do not
// depend on it.
//
// A rank's operations run one after another, also when they are given different streams. A stream may be destroyed after the
// Wait of the Comm that used it. Counts on the device travel
// with the pointers. A call that cannot fit together fails on all ranks: calls that differ, counts out of range. Such an
// error shows at the next Wait or call of each rank, and so does a Timeout: a kernel that waited too long for a peer records
// which, raises the abort word of all ranks and ends.
//
// Captured into a graph, an operation may be replayed: epochs and deadlines are in device memory. Making a graph executable
// may wait for kernels that run, so all ranks that share a GPU do it before the first of them launches anything that waits.
//
// Memory of comm.Alloc comes from an arena that Open takes from the device; freeing gives it back to the arena, because
// freeing device memory waits for kernels that wait for each other. The arena grows when it must and goes back at Close.
//
// Worlds of several processes have Config.FirstRank, Size and Store; processes.go says how they work. There the arena is what
// all processes map, it does not grow, and collectives take no other memory.
package p2p
