// Atomic operations, on memory that several OS threads use. They order nothing else, as on a GPU.
#pragma once

template <class T, class V> __forceinline__ T atomicAdd(T *p, V v) {
    weft_emu::step();
    return __atomic_fetch_add(p, (T)v, __ATOMIC_RELAXED);
}
template <class T, class V> __forceinline__ T atomicSub(T *p, V v) {
    weft_emu::step();
    return __atomic_fetch_sub(p, (T)v, __ATOMIC_RELAXED);
}
template <class T, class V> __forceinline__ T atomicOr(T *p, V v) {
    weft_emu::step();
    return __atomic_fetch_or(p, (T)v, __ATOMIC_RELAXED);
}
template <class T, class V> __forceinline__ T atomicAnd(T *p, V v) {
    weft_emu::step();
    return __atomic_fetch_and(p, (T)v, __ATOMIC_RELAXED);
}
template <class T, class V> __forceinline__ T atomicXor(T *p, V v) {
    weft_emu::step();
    return __atomic_fetch_xor(p, (T)v, __ATOMIC_RELAXED);
}
template <class T, class V> __forceinline__ T atomicExch(T *p, V v) {
    weft_emu::step();
    return __atomic_exchange_n(p, (T)v, __ATOMIC_RELAXED);
}
template <class T, class V> __forceinline__ T atomicCAS(T *p, V want, V v) {
    weft_emu::step();
    T old = (T)want;
    __atomic_compare_exchange_n(p, &old, (T)v, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    return old;
}
template <class T, class V> __forceinline__ T atomicMin(T *p, V v) {
    weft_emu::step();
    T old = __atomic_load_n(p, __ATOMIC_RELAXED);
    while ((T)v < old && !__atomic_compare_exchange_n(p, &old, (T)v, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        ;
    return old;
}
template <class T, class V> __forceinline__ T atomicMax(T *p, V v) {
    weft_emu::step();
    T old = __atomic_load_n(p, __ATOMIC_RELAXED);
    while (old < (T)v && !__atomic_compare_exchange_n(p, &old, (T)v, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        ;
    return old;
}
