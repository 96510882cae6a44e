// Package staged lets ranks compute on the host while their collectives run on GPUs.
//
// [Open] wraps a world of a GPU driver. Its ranks say that they are on the CPU and take Go memory; each operation is copied
// to the rank's GPU, run there by the driver below, and copied back:
//
//	host                                          GPU
//	src ── pack ──► one run of bytes ── Copy ──►  workspace ── the driver's operation ──┐
//	dst ◄── rows ── one run of bytes ◄── Copy ──  workspace ◄───────────────────────────┘
//
// So a program that was written for the CPU, down to a whole served model, runs its collectives through the kernels, flags
// and deadlines of a real driver. It is for correctness and bringing up new machines, not for speed: everything but the
// collectives (routers, experts, attention, sums of an exchanger) still runs on the host, and every call waits for two copies.
//
// The results are the driver's: over comm/p2p they are comm/local's, bit for bit. A call returns when its result is there,
// with its own error, as on the CPU; streams are ignored.
//
// A rank takes device memory when it first needs it and keeps it: what its largest call needs, up to Config.Workspace. A
// larger call is run in several operations of the driver, over rows or columns, that say by their tag which call they are of.
// Messages and AllToAllV, whose sizes only two ranks know, are never cut: for them the workspace grows. After the first call
// of a size nothing is allocated.
package staged
