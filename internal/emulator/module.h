// What a compiled module exports: the stand-in of libnvrtc makes it, the stand-in of libcuda calls it. A "cubin" of the
// emulator is an ELF shared object for the host, which libcuda's stand-in writes to a file of its own for each load (so that
// each load has its own __device__ variables) and opens with dlopen(RTLD_NOW | RTLD_LOCAL).
//
// __device__ variables at file scope and the kernels' functions are ordinary symbols: dlsym finds a variable by its name.
#pragma once
#include <stdint.h>

typedef struct {
    const char *name;              // of the kernel
    uint32_t num_params;           // how many parameters it has
    const uint32_t *param_bytes;   // [num_params]
    const uint32_t *param_offsets; // [num_params], as CUDA lays them out: each at a multiple of its alignment
    uint32_t static_shared;        // bytes of __shared__ variables
    uint32_t max_threads;          // __launch_bounds__, or 1024
    uint32_t num_regs;             // registers for each thread: a plausible number, for attributes only
} weft_emu_kernel;

#ifdef __cplusplus
extern "C" {
#endif

// weft_emu_kernels returns the module's kernels and writes how many there are.
const weft_emu_kernel *weft_emu_kernels(uint32_t *n);

// weft_emu_block runs one block of a kernel (an index of the table) to its end on the calling OS thread. Blocks that wait for
// each other must be on different OS threads. dynamic_shared is the bytes of dynamic shared memory of the launch, which the
// module itself provides. params[i] points at the bytes of parameter i, which nobody writes during the call. Memory that
// device code addresses is memory of this process, at the same addresses.
//
// While all threads of a block wait for something outside of it, the call yields the processor (sched_yield, then short sleeps).
// A failed check (a misaligned vector, an unsupported instruction) prints a line to standard error and aborts the process.
void weft_emu_block(uint32_t kernel, const uint32_t grid[3], const uint32_t block[3], const uint32_t index[3],
                    uint32_t dynamic_shared, void *const *params);

#ifdef __cplusplus
}
#endif
