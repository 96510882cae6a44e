// CUDA C++ for a CPU: what the compiler of kernels knows by itself. It is included before a kernel's source.
//
// No header of the system comes in here but stdint.h: kernels may use any name.
#pragma once
#include "../engine/block.h"

#define __global__
#define __device__
#define __host__
#define __constant__ const
#define __managed__
#define __grid_constant__
#define __launch_bounds__(...)
#define __shared__ static thread_local
#define __align__(n) __attribute__((aligned(n)))
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __restrict__ __restrict

#include "vectors.h"
#include "numbers.h"
#include "threads.h"
#include "atomics.h"
#include "ptx.h"
