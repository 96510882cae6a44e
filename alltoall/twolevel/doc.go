// Package twolevel is dispatch and combine between nodes: a row crosses the network once for each node that needs it, and fans
// out inside the node. On the way back each node adds up what its ranks made of a row, and one sum crosses.
//
//	                between: ranks of one number          inside: ranks of one node
//	source          ─────────────────────────────►  relay ──────────────────────► owners
//	rank 1 of       rows, codes, weights            rank 1 of   rows, experts,    ranks 0, 2, 3
//	node 0          once a node                     node 1      once a rank       of node 1
//
//	out = sum over  ◄─────────────────────────────  sum over    ◄──────────────── partial rows
//	nodes           one row a node                  ranks       one row a rank
//
// A code says which expert of the relay's node a choice means: rank in the node x the most experts of a rank + local expert. The
// source resolves every choice, replicas included, so the relay needs no placement.
//
// What a rank receives is what package alltoall gives on one node, in every bit and in the same order, (source rank, token): the
// relays send the rows of one source node after the other. So are what is dropped and counted, and RankInvariant's sums, where
// every expert row travels back to the source. In the default mode sums have two levels: a node's partial row is the fp32 sum of its
// ranks' partial rows in rank order from +0, rounded to Config.DType, and the source adds nodes in fp32 in node order. That
// is another fixed order than one node's; where sums are exact it gives the same bits.
//
// Before rows move, every rank learns what all others send: from each rank, how many rows to each rank and to each node, and
// whether it refused its call (an all_gather between nodes, then one inside). So a wrong call or a full rank anywhere is an
// Invalid error everywhere and the exchanger stays usable. MaxRecvRows bounds two things, by one policy: what a rank
// receives, and what it relays. With Drop what fits neither is left out at the source and counted there, and two more of these
// exchanges follow, in batches that do not fit alone.
//
// On an fp8 wire a row is quantised once, at its source; relays send the same bytes on.
//
// # On a GPU
//
// The host plans: ids, weights and counts come down, lists go up, and what the exchanger does with rows are kernels of
// package internal/kernels and the drivers' alltoallv. Buffers of a Received have exact shapes. A Dispatch waits for its stream
// several times, and a Combine once, between its legs: work that fails on a GPU lets the stream go on, so nothing may be sent on
// before it is known to have come. Neither can be captured in a graph; they answer Unavailable then. Memory is taken at
// construction, for the worst case that MaxTokensPerRank and MaxRecvRows allow. Both levels must be those of nodes.Levels, which share
// a stream, inside a driver that launches our kernels (comm/p2p). It has run over
// internal/emulator, with NCCL's stand-in between nodes, and not yet on GPUs.
package twolevel
