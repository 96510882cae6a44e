// Bulk copies between device memory and shared memory, and the barriers on which their loads complete. sm_90 and later;
// addresses and sizes are multiples of 16 bytes.

#if __CUDA_ARCH__ >= 900
__device__ __forceinline__ u32 in_shared(const void *p) { return (u32)__cvta_generic_to_shared(p); }
__device__ __forceinline__ void full_init(u64 *b) { asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(in_shared(b)) : "memory"); }
__device__ __forceinline__ void full_expect(u64 *b, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(in_shared(b)), "r"(bytes) : "memory");
}
// full_wait waits for a load of this block, which cannot last.
__device__ __forceinline__ void full_wait(u64 *b, u32 parity) {
    u32 done;
    do {
        asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
                     : "=r"(done) : "r"(in_shared(b)), "r"(parity) : "memory");
    } while (!done);
}
// streaming is the L2 policy of data that nobody looks at twice.
__device__ __forceinline__ u64 streaming() {
    u64 p;
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(p));
    return p;
}
__device__ __forceinline__ void async_load(void *to, const void *from, u32 bytes, u64 *b, u64 policy) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;"
                 ::"r"(in_shared(to)), "l"(from), "r"(bytes), "r"(in_shared(b)), "l"(policy) : "memory");
}
__device__ __forceinline__ void async_store(void *to, const void *from, u32 bytes) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(in_shared(from)), "r"(bytes) : "memory");
}
__device__ __forceinline__ void async_store(void *to, const void *from, u32 bytes, u64 policy) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group.L2::cache_hint [%0], [%1], %2, %3;"
                 ::"l"(to), "r"(in_shared(from)), "r"(bytes), "l"(policy) : "memory");
}
__device__ __forceinline__ void async_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
// async_read waits until all but this thread's N latest groups have been read from shared memory.
template <int N> __device__ __forceinline__ void async_read() { asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(N) : "memory"); }
// async_complete waits until all that this thread stored is written, and hands it over to ordinary stores of flags.
__device__ __forceinline__ void async_complete() { asm volatile("cp.async.bulk.wait_group 0;\nfence.proxy.async;" ::: "memory"); }
// async_fence hands what ordinary accesses have seen and written over to bulk copies.
__device__ __forceinline__ void async_fence() { asm volatile("fence.proxy.async;" ::: "memory"); }
#endif

// after_earlier waits for the kernel in front of this one on its stream, which a launch with overlap need not have seen end.
// Nothing of memory is read before. No kernel lets the next one begin while it still waits for peers: blocks of the next one
// would then hold multiprocessors that a peer's blocks need.
__device__ __forceinline__ void after_earlier() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
