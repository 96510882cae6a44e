// Package arrows is a test: imports between weft's packages only go down.
//
//	examples  benchmarks  cmd/weft          5
//	weft (root)                             4
//	moe   agrs  alltoall  trace consumers   3
//	ep   drivers: comm/local ...            2
//	routing  comm  trace  symm  cuda        1
//	dtype  internal/...                     0
//
// The test reads every Go file, under every build tag, and compares who imports whom with testdata/arrows.golden, so that a
// new arrow is a line in a review (go test ./internal/arrows -update). Whatever the golden file says, an arrow that goes up,
// or between two packages that must not know each other, fails.
package arrows
