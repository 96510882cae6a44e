// Bulk copies and their barriers, of ptx.cuh.
#pragma once

__forceinline__ u32 dynamic_shared_bytes() { return weft_emu::block().dynamic_bytes; }

__forceinline__ weft_emu::Mbarrier &weft_emu_at(u64 *b) {
    weft_emu_aligned(b, 8, "a misaligned barrier");
    return *(weft_emu::Mbarrier *)b;
}
__forceinline__ void barrier_init(u64 *b, u32 n) {
    weft_emu::Mbarrier &m = weft_emu_at(b);
    m.num = m.missing = n;
    m.phase = 0;
    m.bytes = 0;
}
__forceinline__ void barrier_init_fence() {}
__forceinline__ void weft_emu_arrive(weft_emu::Mbarrier &m) {
    if (m.missing == 0)
        weft_emu::fail("an arrival too many at a barrier", m.num);
    m.missing--;
    weft_emu::settle(m);
}
__forceinline__ void barrier_expect(u64 *b, u32 bytes) {
    weft_emu::step();
    weft_emu_at(b).bytes += bytes;
    weft_emu_arrive(weft_emu_at(b));
}
__forceinline__ void barrier_arrive(u64 *b) {
    weft_emu::step();
    weft_emu_arrive(weft_emu_at(b));
}
__forceinline__ void barrier_wait(u64 *b, u32 parity) {
    while (weft_emu_at(b).phase == parity)
        weft_emu::poll();
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
__forceinline__ void bulk_complete() {
    weft_emu::bulk_write();
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
__forceinline__ void bulk_fence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
__forceinline__ void bulk_fence_shared() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
