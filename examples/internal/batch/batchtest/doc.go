// Package batchtest is a stand-in for a language model, for tests of what feeds it.
//
// Its "keys and values" are one number per position: a hash of the whole prefix, made from the number of the position before,
// which it reads back through the block table. So a block that is given to two sequences, freed too early or read at the
// wrong place changes every later token of the sequence, and [Logits] says what should have come out.
package batchtest
