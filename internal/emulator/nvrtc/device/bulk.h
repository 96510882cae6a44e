// Bulk copies and their barriers, of ptx.cuh.
#pragma once

__forceinline__ u32 dynamic_shared_bytes() { return weft_emu::block().dynamic_bytes; }

__forceinline__ weft_emu::Mbarrier &weft_emu_at(u64 *b) {
    weft_emu_aligned(b, 8, "a misaligned barrier");
    return *(weft_emu::Mbarrier *)b;
}
__forceinline__ void barrier_init(u64 *b, u32 n) { weft_emu::mbarrier_init(weft_emu_at(b), n); }
__forceinline__ void barrier_init_fence() {}
__forceinline__ void barrier_expect(u64 *b, u32 bytes) { weft_emu::mbarrier_arrive(weft_emu_at(b), bytes); }
__forceinline__ void barrier_arrive(u64 *b) { weft_emu::mbarrier_arrive(weft_emu_at(b), 0); }
__forceinline__ void barrier_wait(u64 *b, u32 parity) {
    while (!weft_emu::mbarrier_passed(weft_emu_at(b), parity))
        ;
}
__forceinline__ u64 streaming() { return 0; }

__forceinline__ void bulk_load(void *to, const void *from, u32 bytes, u64 *b) {
    weft_emu::step();
    weft_emu::bulk(to, from, bytes, &weft_emu_at(b));
}
__forceinline__ void bulk_load(void *to, const void *from, u32 bytes, u64 *b, u64) { bulk_load(to, from, bytes, b); }
__forceinline__ void bulk_store(void *to, const void *from, u32 bytes) {
    weft_emu::step();
    weft_emu::bulk(to, from, bytes, nullptr);
}
__forceinline__ void bulk_store(void *to, const void *from, u32 bytes, u64) { bulk_store(to, from, bytes); }
__forceinline__ void bulk_commit() { weft_emu::commit(); }
template <int N> __forceinline__ void bulk_read() { weft_emu::bulk_read(N); }
__forceinline__ void bulk_complete() { weft_emu::bulk_write(); }
// These order accesses of two kinds, of one thread: here there is but one kind.
__forceinline__ void bulk_fence() { asm volatile("" ::: "memory"); }
__forceinline__ void bulk_fence_shared() { asm volatile("" ::: "memory"); }
