// Package recipe says a [comm.Op] in NCCL's words: which rows are packed first, which calls make one group, which rows are
// unpacked in the end.
//
//	Op all_gatherv, counts 2 0 3  ──►  Batch{Before: own rows without gaps
//	                                         Calls:  broadcast 2 rows from rank 0, 3 rows from rank 2
//	                                         After:  all rows to where they are wanted}
//
// It touches no library and no device, so its tests need neither.
package recipe
