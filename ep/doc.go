// Package ep holds the nouns of expert-parallel exchange: [Config], [Routing], [Index], [Received], [Exchanger].
//
// An Exchanger sends each token to the ranks that own the experts it was routed to, and brings the weighted sum of their
// outputs back. What happens between the two is the caller's: weft's own layer (package moe) or any expert function.
//
//	x [numTokens, hidden]                                            out [numTokens, hidden]
//	ids, weights [numTokens, topK]                                            ▲
//	        │                                                                 │
//	     Dispatch ──► Received{X, Index, Y} ──► experts read X, write Y ──► Combine
//
// Two strategies implement it: package agrs (gather everything, reduce-scatter the sums) and package alltoall (each token
// only to the ranks that need it). For one placement both give the same bits.
//
// # Order of sums
//
// A rank's partial row of a token is the fp32 sum over its experts in k order, from +0, of the product of weight and
// expert row (rounded to fp32: no fused multiply-add), rounded to Config.DType. The source adds partial rows in fp32 in rank order,
// from +0, then the bias tensors in the order given, and rounds once. With Config.RankInvariant the source instead gets
// every expert row, rounded to DType, and sums the products in k order: the same bits for any number of ranks.
// Between nodes (package alltoall/twolevel) a node first adds the partial rows of its ranks in that way, and the source adds the nodes'.
//
// # Two layouts
//
//	Rows                                        Expanded
//	X row  token    Index.Row, by expert        X row  token        (Alignment 4)
//	0      A        e0: 0 1 · ·                 0      A   ┐
//	1      B        e1: 1 2 · ·                 1      B   │ e0
//	2      C            (· is padding, -1)      2,3    0   ┘
//	                                            4      B   ┐
//	                                            5      C   │ e1
//	                                            6,7    0   ┘
//
// With LowLatency (Rows) each source rank's rows begin at a fixed row of X, here with MaxTokensPerRank 3; gaps hold nothing:
//
//	X row  0 1 2   3 4 5   6 7 8
//	       A B ·   C · ·   D E F
//	       rank 0  rank 1  rank 2
//
// With Rows a grouped product gathers its input rows through the index; Expanded is for experts that want theirs in
// one block.
//
// On a GPU Dispatch and Combine enqueue, and buffers of a Received have room for the most there can be: NumRows and
// Index.Offsets say how much of it is real, on the device. [Received.Experts] waits for them on the host.
//
// # What does not come
//
// Ids outside [0, NumExperts) go nowhere, and so do those of experts without a place: after ranks died, routing.Placement.Without
// says which experts are left, and the exchangers of the world that comm.World.Without opens drop and count the others' ids. The
// weights of a token's other experts stay as they are; a token without experts gets zeros plus bias.
//
// # Rows of the caller's own
//
// Three kinds of rows travel: of DType; narrowed to e4m3 on their way, with a float32 scale for each 128 values (Wire F8E4M3); and rows
// that the caller quantised (Quantised), byte for byte, with opaque bytes of scales beside them.
package ep
