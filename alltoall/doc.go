// Package alltoall exchanges point to point: each token travels once to each rank that owns one of its experts, and one
// partial row of it comes back from each.
//
//	               counts                      rows, scales, local experts, weights
//	rank 0 ─┐                        rank 0 ──► rank 0: rows of rank 0, 1, 2 in order ─► index ─► experts ─┐
//	rank 1 ─┼─ all_gather [P, P] ─►  rank 1 ──► rank 1: ...                                                │
//	rank 2 ─┘                        rank 2 ──► rank 2: ...                                                │
//	                                 out = sum of partial rows in rank order ◄── alltoallv back ◄──────────┘
//
// Before rows move, all ranks learn how many go from each to each. So every rank takes the same decision on a capacity
// (Config.MaxRecvRows), and a call that is wrong on one rank is an error on all.
//
// A token with k experts spread evenly over P ranks travels D = P(1 - C(E-E/P, k)/C(E, k)) times, of which (P-1)/P cross
// to another rank; package agrs always sends it P times. With an fp8 wire a row is one byte a value and a float32 scale
// per 128 values: the largest magnitude of the group / 448, or 1 for a group of zeros.
//
// With Config.RankInvariant every expert row comes back instead of partial rows, and the source sums them in k order.
// That costs more bytes and gives the same bits for any number of ranks.
//
// # On a GPU
//
// The same in one kernel each way, over memory that all ranks address, with the same bits:
//
//	dispatch: count ─► meet: rows per rank; choices per expert ─► places by prefix sums ─► push each row once to each place ─► meet
//	combine:  meet: where each rank's rows are ─► pull what came of this rank's tokens, add up, round once ─► meet
//
// Nothing waits on the host: a dispatch and a combine can be captured in a graph, and Routing.NumTokens makes one graph serve
// all batch sizes. Buffers have room for the most there can be; counts, offsets and NumRows on the device say how much of
// it is real. Memory is taken at construction: X for MaxRecvRows rows and Y for as many or, with expert rows, for MaxSlots; lower
// MaxTokensPerRank or MaxRecvRows where that is too much. A call that is refused on one rank is an error of the next Wait on
// the others, and its result is empty: Release it.
//
// # Low latency
//
// With Config.LowLatency (at most 256 tokens a rank) every row has a fixed place at its destination, so no rank waits to learn how
// many rows come from the others:
//
//	dispatch: count ─► push rows, notes (expert, order, weight) and counts ─┬─► wait for the counts ─► index ─► wait for the rows
//	combine:  sum this rank's experts of a row, push it in pieces ──────────┴─► wait for a piece of each rank, add up
//
// The bar in the middle is where [ep.Splitter] cuts a call in two. On the CPU the same cut is between what needs no peer and the
// one alltoallv. Bits are those of the other mode, and so is the index, but for the numbers of rows. On a GPU this mode has run over
// internal/emulator alone so far.
//
// # Which rows combine reads
//
// Combine reads expert rows where they lie when all ranks share a GPU; else each rank first makes its partial rows, which
// are fewer bytes on the way (WEFT_COMBINE_PULL overrides that). Both give the same bits.
package alltoall
