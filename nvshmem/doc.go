// Package nvshmem binds NVSHMEM's host library: symmetric memory of processes with one GPU each, put, get, signals and barriers.
//
//	Open ── unique id through the store ── init ──► PE   one in a process, for as long as it lives
//	PE.Heap      a block for each rank: a symm.Memory, so comm/p2p's kernels run over NVSHMEM's heap across processes
//	PE.Malloc, Ptr, Put, Get, PutSignal, Signal, BarrierAll, SyncAll, Quiet
//	PE.Load      device-initiated operations: a kernel linked with libnvshmem_device
//
// The library is opened at run time (WEFT_NVSHMEM_LIB, the loader's path, Python's wheels); without it, or without cgo, every
// call is comm.Unavailable.
//
// # What ends a process
//
// NVSHMEM answers many failures with exit(-1). Where several processes share a GPU without MPS, it allows memory, put, get,
// signals and the barriers of all PEs, and ends the process at any team barrier, collective or wait for a signal. Here those
// calls are refused with comm.Unavailable before they reach the library; PE.Limited says whether that is so. A call that waits
// for other PEs has no deadline of its own: when ctx ends before it returns, the PE is broken, its thread stays in the
// library, and later calls are refused.
//
// Unless the variables are set, Open sets NVSHMEM_SYMMETRIC_SIZE to what Config says, NVSHMEM_REMOTE_TRANSPORT to none and
// NVSHMEM_DISABLE_NVLS to 1: one node, and no multicast objects.
package nvshmem
