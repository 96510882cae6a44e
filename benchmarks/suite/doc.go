// Package suite measures collectives and checks their results: the table of operations, inputs whose sums are exact, and
// the timed loops. The command in the folder above prints its results as nccl-tests does; the command in peers runs the
// same cells through MPI libraries.
//
// A Bench is one operation of a world with a type, a reduction and a load; Measure runs one size of it:
//
//	Operation ─ shape ─► how many elements each rank sends and receives
//	     │                   │
//	    run               Pattern ─► inputs, and what must come out
//	     │                   │
//	  timed loop  ─►  Times  │
//	  one more run ──────────┴─► compare every element: #wrong
//
// Inputs are small whole numbers, of which at most four ranks add a non-zero one to each sum, so that every type down to
// fp8 holds every sum exactly, in any order: #wrong is a count and needs no tolerance.
package suite
