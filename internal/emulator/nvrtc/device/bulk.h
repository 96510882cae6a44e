// Bulk copies and their barriers, of ptx.cuh. A copy is done at once, which is one of the times at which a GPU may do it.
#pragma once

__forceinline__ u32 dynamic_shared_bytes() { return weft_emu::block().dynamic_bytes; }

// A barrier's 8 bytes: how many arrivals a phase takes, how many are missing, bytes that are missing, the phase.
struct weft_emu_mbarrier {
    u16 num, missing : 15, phase : 1;
    int bytes;
};
static_assert(sizeof(weft_emu_mbarrier) == 8, "an mbarrier");

__forceinline__ weft_emu_mbarrier &weft_emu_at(u64 *b) {
    weft_emu_aligned(b, 8, "a misaligned barrier");
    return *(weft_emu_mbarrier *)b;
}
__forceinline__ void weft_emu_settle(weft_emu_mbarrier &b) {
    if (b.missing == 0 && b.bytes == 0) {
        b.phase ^= 1;
        b.missing = b.num;
    }
}
__forceinline__ void barrier_init(u64 *b, u32 n) {
    weft_emu_mbarrier &m = weft_emu_at(b);
    m.num = m.missing = n;
    m.phase = 0;
    m.bytes = 0;
}
__forceinline__ void barrier_init_fence() {}
__forceinline__ void weft_emu_arrive(weft_emu_mbarrier &m) {
    if (m.missing == 0)
        weft_emu::fail("an arrival too many at a barrier", m.num);
    m.missing--;
    weft_emu_settle(m);
}
__forceinline__ void barrier_expect(u64 *b, u32 bytes) {
    weft_emu_mbarrier &m = weft_emu_at(b);
    m.bytes += bytes;
    weft_emu_arrive(m);
    weft_emu::step();
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

__forceinline__ void weft_emu_bulk(void *to, const void *from, u32 bytes) {
    if (((u64)to | (u64)from | bytes) % 16 != 0 || bytes == 0)
        weft_emu::fail("a bulk copy of misaligned memory", (u64)to, (u64)from);
    weft_emu::step();
    __builtin_memcpy(to, from, bytes);
}
__forceinline__ void bulk_load(void *to, const void *from, u32 bytes, u64 *b) {
    weft_emu_bulk(to, from, bytes);
    weft_emu_mbarrier &m = weft_emu_at(b);
    m.bytes -= bytes;
    weft_emu_settle(m);
}
__forceinline__ void bulk_load(void *to, const void *from, u32 bytes, u64 *b, u64) { bulk_load(to, from, bytes, b); }
__forceinline__ void bulk_store(void *to, const void *from, u32 bytes) { weft_emu_bulk(to, from, bytes); }
__forceinline__ void bulk_store(void *to, const void *from, u32 bytes, u64) { weft_emu_bulk(to, from, bytes); }
__forceinline__ void bulk_commit() {}
template <int N> __forceinline__ void bulk_read() { weft_emu::step(); }
__forceinline__ void bulk_complete() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
__forceinline__ void bulk_fence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
__forceinline__ void bulk_fence_shared() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
