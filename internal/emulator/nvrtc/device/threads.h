// The thread, its warp and its block.
#pragma once

__forceinline__ const uint3 &weft_emu_three(const weft_emu::Three &t) { return (const uint3 &)t; }
#define threadIdx weft_emu_three(weft_emu::self().thread)
#define blockIdx weft_emu_three(weft_emu::block().index)
#define blockDim weft_emu_three(weft_emu::block().block)
#define gridDim weft_emu_three(weft_emu::block().grid)
#define warpSize 32

__forceinline__ void __syncthreads() { weft_emu::barrier(0, 0, false); }
__forceinline__ int __syncthreads_count(int condition) { return weft_emu::barrier(0, 0, condition != 0); }
__forceinline__ int __syncthreads_or(int condition) { return weft_emu::barrier(0, 0, condition != 0) != 0; }
__forceinline__ int __syncthreads_and(int condition) { return weft_emu::barrier(0, 0, condition == 0) == 0; }

__forceinline__ void __syncwarp(unsigned mask = ~0u) { weft_emu::meet(mask, weft_emu::SYNC, 0, 0); }
// Only the calling lane: lanes of a warp need not run together.
__forceinline__ unsigned __activemask() { return 1u << weft_emu::lane(); }
__forceinline__ unsigned __ballot_sync(unsigned mask, int condition) { return weft_emu::meet(mask, weft_emu::BALLOT, condition != 0, 0); }
__forceinline__ int __any_sync(unsigned mask, int condition) { return __ballot_sync(mask, condition) != 0; }
__forceinline__ int __all_sync(unsigned mask, int condition) { return __ballot_sync(mask, !condition) == 0; }

template <class T> __forceinline__ unsigned long long weft_emu_word(T v) {
    static_assert(sizeof(T) <= 8, "a value of a warp operation");
    unsigned long long w = 0;
    __builtin_memcpy(&w, &v, sizeof v);
    return w;
}
template <class T> __forceinline__ unsigned __match_any_sync(unsigned mask, T v) {
    return weft_emu::meet(mask, weft_emu::MATCH, weft_emu_word(v), 0);
}
template <class T> __forceinline__ T weft_emu_from(unsigned mask, T v, unsigned lane) {
    unsigned long long w = weft_emu::meet(mask, weft_emu::SHUFFLE, weft_emu_word(v), lane);
    T t;
    __builtin_memcpy(&t, &w, sizeof t);
    return t;
}
template <class T> __forceinline__ T __shfl_sync(unsigned mask, T v, int from, int width = 32) {
    unsigned lane = weft_emu::lane();
    return weft_emu_from(mask, v, (lane & ~(width - 1)) + (from & (width - 1)));
}
template <class T> __forceinline__ T __shfl_up_sync(unsigned mask, T v, unsigned by, int width = 32) {
    unsigned lane = weft_emu::lane();
    return weft_emu_from(mask, v, (lane & (width - 1)) < by ? lane : lane - by);
}
template <class T> __forceinline__ T __shfl_down_sync(unsigned mask, T v, unsigned by, int width = 32) {
    unsigned lane = weft_emu::lane();
    return weft_emu_from(mask, v, (lane & (width - 1)) + by >= (unsigned)width ? lane : lane + by);
}
template <class T> __forceinline__ T __shfl_xor_sync(unsigned mask, T v, unsigned with, int width = 32) {
    unsigned lane = weft_emu::lane(), to = lane ^ with;
    return weft_emu_from(mask, v, (to & ~(width - 1)) > (lane & ~(width - 1)) ? lane : to);
}

__forceinline__ void __threadfence_block() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
__forceinline__ void __threadfence() {
    weft_emu::step();
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
__forceinline__ void __threadfence_system() { __threadfence(); }
__forceinline__ void __nanosleep(unsigned) { weft_emu::poll(); }
__forceinline__ void __trap() { weft_emu::fail("a trap"); }

__forceinline__ long long clock64() {
    weft_emu::poll();
    return weft_emu::nanoseconds();
}
__forceinline__ int clock() { return (int)clock64(); }

// Dynamic shared memory: an array with no size, which is where the launch's memory is.
template <class T> struct weft_emu_dynamic {
    operator T *() const { return (T *)((char *)&weft_emu::block() + weft_emu::DYNAMIC); }
    template <class U> explicit operator U *() const { return (U *)(T *)*this; }
};

// Special registers that a source reads by inline PTX, by name.
__forceinline__ unsigned long long weft_emu_register_globaltimer() {
    weft_emu::poll();
    return weft_emu::nanoseconds();
}
__forceinline__ unsigned weft_emu_register_clock() { return (unsigned)clock64(); }
__forceinline__ unsigned weft_emu_register_dynamic_smem_size() { return weft_emu::block().dynamic_bytes; }
// A block is its own cluster.
__forceinline__ unsigned weft_emu_register_cluster_ctarank() { return 0; }
__forceinline__ unsigned weft_emu_register_cluster_nctarank() { return 1; }
