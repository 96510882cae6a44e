// Package plan predicts, before anything is allocated, what a Mixture-of-Experts model costs on a cluster: which collective
// each layout runs, how many bytes it moves, what it keeps in memory, roughly how long it takes, and which layout to try first.
//
//	config.json or preset --> Model --+                       +--> Steps        what runs per layer, and why
//	8xH200, 4x8xH100, ...  -> Cluster-+--> New(Request) ------+--> Traffic      bytes, in every counting
//	judge, chat, decode   --> Workload+       |               +--> Memory       per GPU; refused if it cannot fit
//	tp8+ep8, dp8+ep8, ... --> Layout -+       v               +--> Advice       rules with ids and reasons
//	                                        Report            +--> Timing       alpha-beta model
//
// Everything is a pure function of its arguments; nothing here talks to a device. Two kinds of numbers come out. Counts
// (parameters, bytes, launches) are exact and tested against formulas. Times are predictions: their constants stand in one
// table, each with its source, and package plan/published holds them against published measurements.
//
// The words: S is one layer's activation tensor in bytes, numTokens x hidden x 2. P is the number of ranks of a group. A
// layout is written like tp8+ep8 or dp2tp4+ep8, as package moe does.
package plan
