// Package ipc is symmetric memory between processes of one machine, by CUDA IPC: each rank allocates a block on its device
// and gives the others a handle of it, and every process maps the blocks of the others.
//
//	process 0                               process 1
//	cuMemAlloc ── handle ──► store ──► cuIpcOpenMemHandle ──► an address of its own for rank 0's block
//
// [Memory] works so, with CUDA's older handles; [Descriptors] passes file descriptors of physical memory over a Unix socket
// instead, where handles are not to be had, or a process has several devices and one mapping for all is wanted.
//
// Handles go through the job's store. Each rank stamps its block before it gives the handle away, and whoever maps it looks for
// the stamp: a mapping of other memory is found at once, not by a wrong sum. Processes must see each other's GPU (the same one,
// or one with peer access) and share an IPC namespace; containers often do not.
//
// Blocks are unmapped before they are freed: Close meets the other processes in between. With a ctx that has ended, as after the
// death of a process, it waits for nobody.
package ipc
