// Package commtest is the conformance suite of comm's drivers, and a way to run a test on all ranks of a world.
//
// A driver's test is three lines:
//
//	func TestDriver(t *testing.T) {
//		commtest.TestDriver(t, func(t testing.TB, ranks int) *comm.World { ... open it ... })
//	}
//
// The suite compares every collective with a plain oracle written here, bit for bit: sums in fp32, in rank order, from +0,
// rounded once to the payload type. Destinations are poisoned with NaN before each call, and what a call must not write
// is compared with the poison after it.
//
//	          inputs of all ranks (a pure function of rank and part)
//	               │                                  │
//	upload -> collective of the driver -> download    oracle
//	               └───────────────  ==  ─────────────┘
//
// A case whose operation the driver answers with [comm.Unavailable] is logged and left out, and skipped when nothing of it
// could run; with [Complete] it fails.
package commtest
