// Package eptest is the conformance suite of ep.Exchanger: what every strategy must do, on the CPU driver.
//
//	func TestConformance(t *testing.T) {
//		eptest.TestExchanger(t, func(ctx context.Context, c *comm.Comm, cfg ep.Config) (ep.Exchanger, error) {
//			return agrs.New(ctx, c, cfg)
//		})
//	}
//
// Each step makes tokens whose every sum is exact (small integers), runs Dispatch, a stand-in for experts and Combine on
// all ranks, and compares what came with plain loops over all tokens of all ranks that share no code with the strategies:
//
//	Step (all ranks' x, ids, weights, bias) ──► oracle: received rows, index, out
//	      │                                         ║ ==
//	      └──► Dispatch ──► experts ──► Combine ────╝
//
// The memory of every bank is filled with NaN before each use.
package eptest
