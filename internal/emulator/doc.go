// Package emulator runs weft's GPU code on a CPU: it builds stand-ins of libcuda and libnvrtc, which the rest of weft opens in
// place of NVIDIA's. No line of the GPU code knows of it.
//
//	eval "$(go run ./internal/emulator/cmd)"
//	go test ./comm/p2p ./ep/... ./agrs ./alltoall ./internal/kernels
//
// How it works:
//
//	internal/nvrtc ─ dlopen ─> libnvrtc.so.13   g++ compiles the kernels' text, with CUDA's words defined by a header, to a
//	                                            shared object: the "cubin" (folder nvrtc)
//	cuda           ─ dlopen ─> libcuda.so.1     memory is memory, streams are queues, and a launch runs each block on an OS
//	                                            thread of its own (folder driver)
//	the shared object          weft_emu_block   a block's threads are fibers that take turns: one runs until it comes to a
//	                                            barrier or a warp operation, or has looked at a flag (folder nvrtc/engine)
//
// internal/kernels/ptx.cuh holds all inline PTX; nvrtc/device/ptx.h and bulk.h give the same functions bodies for a CPU. Where both
// say what an instruction does, they must say the same.
//
// What it can show: that the logic is right (counts, offsets, indices, bits of sums), for many interleavings of blocks, ranks and,
// with WEFT_EMULATOR_SEED, of threads; that every wait ends or times out; deadlocks within a block, which are reported with
// where each thread stands; barriers and warp operations that some threads miss or others enter with another count or mask;
// misaligned accesses of flags, lines, vectors and bulk copies; shared memory that is read before it is written, which begins
// as nonsense; with a seed, bulk copies that are read or overwritten too early, since they then take their time; with
// WEFT_EMULATOR_RACES, two accesses of one place, one of them a write, that no barrier, fence or flag orders.
//
// What it cannot show: what a GPU's memory model does with such accesses, since the host's is stronger; all of them, since the search
// forgets (nvrtc/engine/shadow.cpp), sees kernels alone and not the driver's copies, and takes a kernel to know all that blocks did
// which ended before it began: a fence that is missing before a kernel's last flag was not found when it was taken out, a
// barrier that is missing within a kernel was; warps that run in step; registers, spills and speed. Code that has passed
// here has not run on a GPU.
//
// Variables: WEFT_EMULATOR_SEED=n lets threads run in a random order, another one in each block and run, and yield between the
// halves of lines and before atomics and stores of flags. WEFT_EMULATOR_RACES=1 looks for races and ends the process at the first,
// 2 tells of each on standard error, which go test shows with -v, and goes on. WEFT_EMULATOR_KEEP=1 leaves the text and the shared
// object of each compiled program for a day, in the folder programs beside the libraries; what races were looked for in stays in
// races for 30. CXX is the compiler, g++ when unset. The driver reads more: see driver/settings.h.
package emulator
