// What a GPU does and C++ has no words for: PTX instructions, each behind a small function. No other file has inline PTX, so that
// internal/emulator can give these functions bodies for a CPU (it defines WEFT_EMULATED). sm_80 and later; what needs a
// newer GPU says so.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

#ifndef WEFT_EMULATED

// Words that other ranks or the host read and write.

__device__ __forceinline__ u64 load_acquire(const u64 *p) {
    u64 v;
    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
    return v;
}
__device__ __forceinline__ u64 load_relaxed(const u64 *p) {
    u64 v;
    asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
    return v;
}
__device__ __forceinline__ void store_release(u64 *p, u64 v) {
    asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
}
__device__ __forceinline__ void store_relaxed(u64 *p, u64 v) {
    asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
}
// store_line and load_line move two words of 8 bytes, a value and a flag each, that lie in 16 aligned bytes. A word arrives whole.
__device__ __forceinline__ void store_line(void *p, u32 a, u32 b, u32 flag) {
    asm volatile("st.volatile.global.v4.u32 [%0], {%1, %2, %3, %2};" ::"l"(p), "r"(a), "r"(flag), "r"(b) : "memory");
}
__device__ __forceinline__ void load_line(const void *p, u32 &a, u32 &flagA, u32 &b, u32 &flagB) {
    asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(a), "=r"(flagA), "=r"(b), "=r"(flagB) : "l"(p) : "memory");
}
// count_one adds 1 and returns what was there. It carries what this thread has seen and written, and brings what earlier
// callers have, within the GPU.
__device__ __forceinline__ u64 count_one(u64 *p) {
    u64 before;
    asm volatile("atom.acq_rel.gpu.global.add.u64 %0, [%1], 1;" : "=l"(before) : "l"(p) : "memory");
    return before;
}
__device__ __forceinline__ void add_relaxed(u64 *p, u64 n) {
    asm volatile("red.relaxed.gpu.global.add.u64 [%0], %1;" ::"l"(p), "l"(n) : "memory");
}

// load_stream loads what no thread of this multiprocessor looks at again.
template <class V> __device__ __forceinline__ V load_stream(const V *p) { return *(const volatile V *)p; }
template <> __device__ __forceinline__ uint4 load_stream(const uint4 *p) {
    uint4 v;
    asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p) : "memory");
    return v;
}
template <> __device__ __forceinline__ uint2 load_stream(const uint2 *p) {
    uint2 v;
    asm volatile("ld.global.L1::no_allocate.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(p) : "memory");
    return v;
}

// Time.

__device__ __forceinline__ u64 clock_ns() {
    u64 t;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));
    return t;
}
__device__ __forceinline__ u32 clock_cycles() {
    u32 t;
    asm volatile("mov.u32 %0, %clock;" : "=r"(t));
    return t;
}

// follow waits for what is in front of this kernel in its stream. Kernels are launched so that the GPU prepares them before the
// one in front has ended, which saves most of the time between two of them (with eight ranks 6 us); nothing may be touched
// before. No kernel lets the next one begin early: its blocks could take the place of blocks that others wait for.
__device__ __forceinline__ void follow() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// sync_some is __syncthreads of a part of the block's warps: threads in all, under a number of their own.
template <int ID> __device__ __forceinline__ void sync_some(u32 threads) {
    asm volatile("bar.sync %0, %1;" ::"n"(ID), "r"(threads) : "memory");
}

// Numbers.

__device__ __forceinline__ float f16_up(u16 x) {
    float f;
    asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(x));
    return f;
}
__device__ __forceinline__ u16 f16_down(float f) {
    u16 x;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(x) : "f"(f));
    return x;
}
__device__ __forceinline__ u16 bf16_down(float f) {
    u16 x;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(x) : "f"(f));
    return x;
}
// min_nan and max_nan return NaN where either is.
__device__ __forceinline__ float min_nan(float a, float b) {
    float r;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
    return r;
}
__device__ __forceinline__ float max_nan(float a, float b) {
    float r;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
    return r;
}
#if __CUDA_ARCH__ >= 890
// e4m3_pair narrows two values, saturating; NaN loses its sign.
__device__ __forceinline__ u16 e4m3_pair(float low, float high) {
    u16 x;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(x) : "f"(high), "f"(low));
    return x;
}
#endif

// Bulk copies between device memory and shared memory, and the barriers on which their loads complete: addresses and sizes
// are multiples of 16 bytes.

#if __CUDA_ARCH__ >= 900
__device__ __forceinline__ u32 shared_address(const void *p) { return (u32)__cvta_generic_to_shared(p); }
// dynamic_shared_bytes is the dynamic shared memory that the launch came with.
__device__ __forceinline__ u32 dynamic_shared_bytes() {
    u32 bytes;
    asm volatile("mov.u32 %0, %dynamic_smem_size;" : "=r"(bytes));
    return bytes;
}
// barrier_init makes a barrier whose phases end after n arrivals, and the bytes that they said they expect.
__device__ __forceinline__ void barrier_init(u64 *b, u32 n) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(b)), "r"(n) : "memory");
}
// barrier_init_fence shows new barriers to bulk copies.
__device__ __forceinline__ void barrier_init_fence() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
__device__ __forceinline__ void barrier_expect(u64 *b, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(b)), "r"(bytes) : "memory");
}
__device__ __forceinline__ void barrier_arrive(u64 *b) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(b)) : "memory");
}
// barrier_wait waits for the phase; copies of this block alone end it, so it cannot last.
__device__ __forceinline__ void barrier_wait(u64 *b, u32 parity) {
    u32 done;
    do {
        asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
                     : "=r"(done) : "r"(shared_address(b)), "r"(parity) : "memory");
    } while (!done);
}
// streaming is the L2 policy of data that nobody looks at twice.
__device__ __forceinline__ u64 streaming() {
    u64 p;
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(p));
    return p;
}
__device__ __forceinline__ void bulk_load(void *to, const void *from, u32 bytes, u64 *b) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                 ::"r"(shared_address(to)), "l"(from), "r"(bytes), "r"(shared_address(b)) : "memory");
}
__device__ __forceinline__ void bulk_load(void *to, const void *from, u32 bytes, u64 *b, u64 policy) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;"
                 ::"r"(shared_address(to)), "l"(from), "r"(bytes), "r"(shared_address(b)), "l"(policy) : "memory");
}
__device__ __forceinline__ void bulk_store(void *to, const void *from, u32 bytes) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(shared_address(from)), "r"(bytes) : "memory");
}
__device__ __forceinline__ void bulk_store(void *to, const void *from, u32 bytes, u64 policy) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group.L2::cache_hint [%0], [%1], %2, %3;"
                 ::"l"(to), "r"(shared_address(from)), "r"(bytes), "l"(policy) : "memory");
}
// bulk_commit ends a group of this thread's stores.
__device__ __forceinline__ void bulk_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
// bulk_read waits until all but this thread's N latest groups have been read from shared memory.
template <int N> __device__ __forceinline__ void bulk_read() { asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(N) : "memory"); }
// bulk_complete waits until all that this thread stored is written, and hands it over to ordinary stores of flags.
__device__ __forceinline__ void bulk_complete() { asm volatile("cp.async.bulk.wait_group 0;\nfence.proxy.async;" ::: "memory"); }
// bulk_fence hands what ordinary accesses have seen and written over to bulk copies; bulk_fence_shared what they have written to
// shared memory.
__device__ __forceinline__ void bulk_fence() { asm volatile("fence.proxy.async;" ::: "memory"); }
__device__ __forceinline__ void bulk_fence_shared() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
#endif

#endif // WEFT_EMULATED
