// Package moe is the fused Mixture-of-Experts layer: router, exchange, expert products, combine.
//
// A token goes through the few experts that a router chose for it, and their outputs are added with the router's weights.
// What makes the layer hard is that its experts are spread over ranks. Three objects hold what was decided about that, once,
// in [New]; [Layer.String] prints it in one line:
//
//	layer    the weights; which experts, or which slice of each, are here
//	runner   router and shared experts; where the one reduction is
//	kernel   an exchanger or none, and an experts implementation that fits it
//
// # The three cases
//
// The gate is one function, [Parallel.UseExchange]: an exchanger is used when dp > 1 and the experts are whole.
//
//	dp = 1                    dp > 1 with ep                 dp > 1 without ep
//	all ranks have all rows   own rows, experts of its own   own rows, a slice of every expert
//
//	router on all rows        router on own rows             router on own rows
//	  │                         │ dispatch (exchanger)         │ all_gatherv {x, weights, ids}
//	experts or slices here    experts here                   slices here, on the rows of all ranks
//	  │                         │ combine (exchanger)          │ reduce_scatterv
//	one all_reduce            own rows                       own rows
//
// The collectives of one [Layer.Forward] are what the picture shows and nothing else: 1 all_reduce; what the exchanger
// documents (agrs: 1 all_gatherv and 1 reduce_scatterv); 1 all_gatherv and 1 reduce_scatterv. Ranks without tokens make
// the same calls.
//
// Shared experts run on every token and are added exactly once: with an exchanger whole, on the rank's own rows, as a bias
// of Combine; else sliced over all ranks, inside the one reduction.
//
// # Missing experts
//
// Config.Placement may lack experts, as that of the ranks that are left when others died does (routing.Placement.Without): a token that
// chose one goes without it. The weights of its other experts stay as they are: dividing by what is left would change every
// token that lost little, and has no answer for one that lost all. The exchanger counts what it dropped (ep.Stats.DroppedIDs).
//
// # Bits
//
// A rank's partial row for a token is the fp32 sum over its experts in k order, from +0, each product of weight and value
// rounded; partial rows are added in rank order, from +0. So for one placement of experts, agrs, alltoall and dp = 1 with ep
// give equal results (==). With [Config.RankInvariant] the source gets all k rows of a token and adds them in k order: the
// results are then equal for every number of ranks.
//
// A token's result does not depend on the other tokens of the batch: NaN in one row stays in that row. A row of NaN is routed
// to the lowest ids with NaN weights.
package moe
