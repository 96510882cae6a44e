// Package notes is how ranks of one process see what the others call: each leaves a [Note] before it enqueues, and looks at theirs.
//
//	rank 0: Write(7, all_reduce f32[2, 8])     rank 1: Write(7, broadcast) ── rank 0's note Differs ──► both are told
//
// Of two members the later one sees the difference, because a note is complete before its writer looks at the others'.
package notes
