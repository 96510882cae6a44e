// Package deploy puts a model into service: a world of ranks, a part of the model on each, and the engine that drives them,
// with the counters that hold what was measured against what the model's shape says.
//
//	folder + layout ── Open ──> World (ranks) ── Model a rank ── Engine ──> Submit
package deploy
