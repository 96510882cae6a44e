// Package kvcache hands out blocks of the paged key/value cache. It knows nothing of keys and values: a block is a number,
// and the model keeps BlockSize positions of every layer under it.
//
//	sequence A  [ 4 | 0 | 7 ]      positions 0..15, 16..31, 32..47
//	sequence B  [ 2 ]
//	free          1 3 5 6
//
// Blocks count their holders, so that sequences with a common beginning can share them; a block is free when the last
// holder lets go. The accounting is exact: Free() + Used() == Total() at any time, and a block that is given back twice is
// an error, not a corruption that shows later.
package kvcache
