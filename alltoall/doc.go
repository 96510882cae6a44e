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
package alltoall
