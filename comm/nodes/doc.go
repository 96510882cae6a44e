// Package nodes makes one world of several nodes: inside a node its ranks talk through one driver, between nodes the ranks of
// equal number talk through another, such as p2p inside and nccl between.
//
//	             node 0            node 1
//	inside    0 - 1 - 2 - 3     4 - 5 - 6 - 7      a world of each node
//	between   0 - 4, 1 - 5, 2 - 6, 3 - 7           a world of each column
//
// An operation is steps of both, so that every byte crosses between nodes as seldom as it can:
//
//	all_reduce       reduce_scatter inside, all_reduce between, all_gather inside
//	all_gather(v)    all_gatherv between, then all_gatherv inside, once for each node's rows
//	reduce_scatter(v) reduce_scatterv inside, once for each node's rows, then reduce_scatterv between
//	broadcast        between, in the root's column, then inside every node
//	reduce           inside every node, then between, in the root's column
//	barrier          inside, between, inside
//	send, recv       within a node or a column
//
// Sums have two levels: each node's partial sum is rounded to the payload type, then the nodes' partial sums are added. With
// sums in rank order in both drivers that is one fixed order too, but not that of one world of all ranks. Counts on the device are
// gathered first, on the CPU alone. What has no such form answers Unavailable: alltoallv across nodes, counts on a GPU, and
// Split where there are several nodes of several ranks. [Levels] gives the groups inside and between, which have both.
//
// On GPUs the steps of an operation are enqueued one behind the other. When a rank's step gives up, at its deadline or because a
// peer died, its stream goes on to the next: ranks of other nodes may get what never came, and hear of the failure some
// milliseconds later, at a later Wait. Who must know first waits in between, on the levels, as alltoall/twolevel does.
package nodes
