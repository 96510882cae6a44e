// Package layout parses the short names of how a model is spread over ranks.
//
//	tp8               8 ranks share every matrix; every expert is sliced over all of them
//	tp8+ep8           the same, but experts are whole and spread over the 8 ranks
//	dp2tp4+ep8        2 replicas of attention over 4 ranks each; experts whole over all 8, exchanged by agrs
//	dp8               8 replicas of attention; every expert sliced over all 8 ranks
//	dp8+ep8:agrs      8 replicas of attention; experts whole, exchanged by all_gatherv and reduce_scatterv
//	dp8+ep8:alltoall  the same, exchanged point to point
package layout
