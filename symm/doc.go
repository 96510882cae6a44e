// Package symm is symmetric memory: a [Region] is memory of equal size on every rank, which every rank of the group can
// address. It is the one transport of weft's GPU code: kernels get a table of addresses and never ask where they came from.
//
//	           rank 0        rank 1        rank 2
//	Region   [ bytes ]     [ bytes ]     [ bytes ]      At(1, 64, ...) means the same bytes on every rank
//	            └──────────── Provider ────┘
//	   comm/p2p: a range of addresses that all GPUs of the process map; the CPU: Go memory of one process
//
// Who allocates is a [Provider]: a power of a driver's Conn. The CPU driver needs none.
//
// In a world that spans processes each rank has one block, its [Heap], from a [Memory] that all processes map: package symm/ipc
// takes it from CUDA IPC, package nvshmem from NVSHMEM. Regions are then pieces of the blocks.
package symm
