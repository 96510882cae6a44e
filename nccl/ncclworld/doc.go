// Package ncclworld is weft's driver over NCCL: ranks of one process or of many, a GPU for each.
//
//	Open ──► comm.World      every comm.Op that NCCL can do
//	          each rank: Do ── one C call: pack, group of NCCL's calls, unpack ──► the rank's stream
//
// A Comm's Conn has a method Communicator, for functions of NCCL that comm has no name for:
//
//	c.Conn().(interface{ Communicator() *nccl.Communicator }).Communicator()
//
// Rows with gaps are packed into a workspace that grows. Equal counts take NCCL's uniform calls. Ragged all_gatherv is one group of
// broadcasts, one for each rank that has rows; reduce_scatterv one group of reduces; alltoallv one group of sends and
// receives; [Padded] and [Messages] are other ways. A barrier is an all_reduce of one number. Counts on the device are
// Unavailable, on every rank, before anything is enqueued: NCCL takes counts from the host.
//
// Sums are NCCL's: rounded to the payload type at every hop, in an order of its choice, so results differ from other
// drivers' in the last bits, by at most P-1 roundings of the partial sums among P ranks. Avg multiplies by 1/P first.
//
// A world ends when a rank fails, here or, with a Store, in another process. NCCL cannot say who is missing: a Timeout names
// local ranks that called less, and those of other processes that answer through the store that they did, or do not answer.
// Local ranks that call different things are found out and told (Invalid, naming both calls); if the whole group is in this
// process its communicators are made anew and it goes on. Between processes package lockstep finds such mistakes.
package ncclworld
