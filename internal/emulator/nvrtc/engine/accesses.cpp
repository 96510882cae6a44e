// What the compiler's instrumentation of accesses calls.
#include "races.h"

using namespace weft_emu;

#define PLACE (uintptr_t) __builtin_return_address(0)

static inline void plain(void *p, uint32_t bytes, bool write, uintptr_t place) {
    Block &b = block();
    if (b.races)
        access(b, (uintptr_t)p, bytes, write, false, place);
}
// Volatile accesses are of one piece, but order nothing.
static inline void whole(void *p, uint32_t bytes, bool write, uintptr_t place) {
    Block &b = block();
    if (b.races)
        access(b, (uintptr_t)p, bytes, write, true, place);
}

extern "C" {
void __tsan_init() {}
#define SIZE(n)                                                                                                                \
    void __tsan_read##n(void *p) { plain(p, n, false, PLACE); }                                                                \
    void __tsan_write##n(void *p) { plain(p, n, true, PLACE); }                                                                \
    void __tsan_unaligned_read##n(void *p) { plain(p, n, false, PLACE); }                                                      \
    void __tsan_unaligned_write##n(void *p) { plain(p, n, true, PLACE); }                                                      \
    void __tsan_volatile_read##n(void *p) { whole(p, n, false, PLACE); }                                                       \
    void __tsan_volatile_write##n(void *p) { whole(p, n, true, PLACE); }                                                       \
    void __tsan_unaligned_volatile_read##n(void *p) { whole(p, n, false, PLACE); }                                             \
    void __tsan_unaligned_volatile_write##n(void *p) { whole(p, n, true, PLACE); }
SIZE(1)
SIZE(2)
SIZE(4)
SIZE(8)
SIZE(16)
void __tsan_read_range(void *p, unsigned long n) { plain(p, n, false, PLACE); }
void __tsan_write_range(void *p, unsigned long n) { plain(p, n, true, PLACE); }
void __tsan_vptr_update(void **, void *) {}
void __tsan_vptr_read(void **) {}
void __tsan_func_entry(void *) {}
void __tsan_func_exit() {}

static bool acquires(int order) { return order != __ATOMIC_RELAXED && order != __ATOMIC_RELEASE; }
static bool releases(int order) { return order == __ATOMIC_RELEASE || order == __ATOMIC_ACQ_REL || order == __ATOMIC_SEQ_CST; }

#define CHANGE(T, bits, name)                                                                                                  \
    T __tsan_atomic##bits##_##name(volatile T *p, T v, int order) {                                                            \
        Block &b = block();                                                                                                    \
        whole((void *)p, bits / 8, true, PLACE);                                                                               \
        publish(b, (uintptr_t)p, releases(order), true);                                                                       \
        T old = __atomic_##name##_n_or_fetch(p, v);                                                                            \
        observe(b, (uintptr_t)p, acquires(order));                                                                             \
        return old;                                                                                                            \
    }
#define __atomic_fetch_add_n_or_fetch(p, v) __atomic_fetch_add(p, v, __ATOMIC_SEQ_CST)
#define __atomic_fetch_sub_n_or_fetch(p, v) __atomic_fetch_sub(p, v, __ATOMIC_SEQ_CST)
#define __atomic_fetch_and_n_or_fetch(p, v) __atomic_fetch_and(p, v, __ATOMIC_SEQ_CST)
#define __atomic_fetch_or_n_or_fetch(p, v) __atomic_fetch_or(p, v, __ATOMIC_SEQ_CST)
#define __atomic_fetch_xor_n_or_fetch(p, v) __atomic_fetch_xor(p, v, __ATOMIC_SEQ_CST)
#define __atomic_exchange_n_or_fetch(p, v) __atomic_exchange_n(p, v, __ATOMIC_SEQ_CST)

#define ATOMIC(T, bits)                                                                                                        \
    T __tsan_atomic##bits##_load(const volatile T *p, int order) {                                                             \
        whole((void *)p, bits / 8, false, PLACE);                                                                              \
        T v = __atomic_load_n(p, __ATOMIC_SEQ_CST);                                                                            \
        observe(block(), (uintptr_t)p, acquires(order));                                                                       \
        return v;                                                                                                              \
    }                                                                                                                          \
    void __tsan_atomic##bits##_store(volatile T *p, T v, int order) {                                                          \
        whole((void *)p, bits / 8, true, PLACE);                                                                               \
        publish(block(), (uintptr_t)p, releases(order), false);                                                                \
        __atomic_store_n(p, v, __ATOMIC_SEQ_CST);                                                                              \
    }                                                                                                                          \
    int __tsan_atomic##bits##_compare_exchange_strong(volatile T *p, T *old, T v, int order, int) {                            \
        Block &b = block();                                                                                                    \
        whole((void *)p, bits / 8, true, PLACE);                                                                               \
        publish(b, (uintptr_t)p, releases(order), true);                                                                       \
        bool done = __atomic_compare_exchange_n(p, old, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);                         \
        observe(b, (uintptr_t)p, acquires(order));                                                                             \
        return done;                                                                                                           \
    }                                                                                                                          \
    CHANGE(T, bits, fetch_add)                                                                                                 \
    CHANGE(T, bits, fetch_sub)                                                                                                 \
    CHANGE(T, bits, fetch_and)                                                                                                 \
    CHANGE(T, bits, fetch_or)                                                                                                  \
    CHANGE(T, bits, fetch_xor)                                                                                                 \
    CHANGE(T, bits, exchange)
ATOMIC(uint32_t, 32)
ATOMIC(uint64_t, 64)

void __tsan_atomic_thread_fence(int) {
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    fence(block());
}
} // extern "C"
