// Package kvcache hands out blocks of the paged key/value cache. It knows nothing of keys and values: a block is a number,
// and the model keeps BlockSize positions of every layer under it.
//
//	sequence A  [ 4 | 0 | 7 ]      positions 0..15, 16..31, 32..47
//	sequence B  [ 2 ]
//	sequence C  [ 4 | 0 | 5 ]      begins like A: 4 and 0 have two holders
//	cached        3                nobody's, but its contents may serve again
//	free          1 6
//
// Blocks count their holders, so that sequences with a common beginning can share them. The accounting is exact:
// Free() + Cached() + Used() == Total() at any time, and a block that is given back twice is an error, not a corruption
// that shows later.
//
// A pool made by NewCached is a prefix cache too. Store tells it that full blocks have been computed, and for which token ids;
// Match finds the blocks of the longest stored beginning of another sequence. What is looked up is a hash chained over
// all tokens before (a Chain), but what decides is the token ids themselves, so no collision can hand out wrong contents.
// A stored block stays findable when its last holder lets go, until Alloc needs it for something else; what was unused for
// longest goes first.
package kvcache
