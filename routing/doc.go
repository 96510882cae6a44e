// Package routing turns top-k expert ids into counts, offsets and slots, in pure Go over host slices.
//
// [Placement] says which rank owns which expert. A rank that sends builds a [Plan] from the ids of its tokens; a rank that
// received rows builds an [Index] over them. Both are scans in token order, never a race for the next free slot, so the
// same ids always give the same layout.
//
//	ids [numTokens, topK]            Plan of the sender                     Index of the receiver
//
//	token 0:  e5 e0      rank 0 <- tokens 0, 1     experts {0,1,2}    local 0: rows 0 1 .    (. is padding)
//	token 1:  e1 e0      rank 1 <- tokens 0, 2     experts {3,4,5}    local 1: row  1 . .
//	token 2:  e4 e4
//
// A token travels once to a rank, however many of its experts live there. An expert that is named twice counts twice. Ids
// outside [0, NumExperts) are dropped and counted.
//
// When ranks are gone, [Placement.Without] is where experts live from then on: the survivors are numbered anew and keep their
// experts in their order, so no weights move. Experts that only the missing ranks had are dropped and counted; those with a
// replica elsewhere are served there.
package routing
