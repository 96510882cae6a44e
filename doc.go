// Package weft opens worlds of ranks that work on one model together, and names the ways to exchange tokens between
// them. It is the one place that knows drivers and strategies by name; everything else is in the packages below it.
//
//	weft.Open ──> comm.World ── one comm.Comm a rank: collectives on comm.Buffers
//	                  │
//	                  └── World.Run: one goroutine a rank
//
// Package comm says what a world, a rank, a buffer and a collective are. A program that knows its driver can call the
// driver's own Open (comm/local) and needs nothing of this package.
package weft
