// Package model computes a Qwen3-MoE forward pass on one rank of any TP x DP layout, with experts whole on their ranks (EP) or
// sliced over all of them.
//
// A layout has TP x DP ranks; rank = replica x TP + shard. The ranks of a replica share its sequences: each has some of the
// query heads with the key/value heads they read, a slice of every dense MLP and some rows of the output head. Experts are
// spread over all ranks of the world, which package moe sees to.
//
//	tokens ─ embed ─┐
//	  ┌─────────────┴──────────────────── each layer ──────────────────────────────────────┐
//	  │ norm ─ q,k,v ─ norm, rotate ─ cache ─ attention ─ out ─ REDUCE ─ norm ─ MLP or MoE │
//	  └─────────────┬──────────────────────────────────────────────────────────────────────┘
//	     wanted rows ─ norm ─ output head ─ GATHER vocabulary ─ logits
//
// REDUCE is over the replica when TP > 1: an all_reduce of rows, and the dense MLP and the MoE layer end in another. Where
// data-parallel replicas share experts (DP > 1) no token may be dispatched twice; there REDUCE is a reduce_scatterv by rows,
// each rank runs the MoE layer on its own rows, and an all_gatherv inside the replica follows. [Config.Formula] counts all
// of them from the sizes of a step, and the counters of package comm are tested against it.
//
// # Attention
//
// Keys and values lie in blocks that the scheduler hands out, in the panel layout of package gemm, so that scores and
// outputs are matrix products over the cache as it lies, for prompts and single tokens alike. The softmax is computed on the
// way, over tiles of keys at fixed absolute positions. So the logits of a token depend on the tokens before it alone: they
// have the same bits however a prompt is cut into steps, whatever else is in the batch, and for every block size. (Between
// layouts bits differ, since sums over ranks are in rank order.)
//
// # Numbers
//
// All arithmetic is float32; weights in bfloat16 or float16 are widened when they are loaded.
package model
