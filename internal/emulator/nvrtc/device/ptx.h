// The functions of internal/kernels/ptx.cuh, for a CPU.
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

// aligned ends the process where a GPU would: an address that is no multiple of the access's size.
__forceinline__ void weft_emu_aligned(const void *p, u64 bytes, const char *what) {
    if ((u64)p % bytes != 0)
        weft_emu::fail(what, (u64)p, bytes);
}

// Each look lets others run, since it may be one of many.
__forceinline__ u64 load_acquire(const u64 *p) {
    weft_emu_aligned(p, 8, "a misaligned load");
    u64 v = __atomic_load_n(p, __ATOMIC_ACQUIRE);
    weft_emu::poll();
    return v;
}
__forceinline__ u64 load_relaxed(const u64 *p) {
    weft_emu_aligned(p, 8, "a misaligned load");
    u64 v = __atomic_load_n(p, __ATOMIC_RELAXED);
    weft_emu::poll();
    return v;
}
__forceinline__ void store_release(u64 *p, u64 v) {
    weft_emu_aligned(p, 8, "a misaligned store");
    weft_emu::step();
    __atomic_store_n(p, v, __ATOMIC_RELEASE);
}
__forceinline__ void store_relaxed(u64 *p, u64 v) {
    weft_emu_aligned(p, 8, "a misaligned store");
    weft_emu::step();
    __atomic_store_n(p, v, __ATOMIC_RELAXED);
}
// Both words of a line are whole, the line is not: between them others may run. A line brings what its writer knew when its
// kernel began, or at its latest fence.
__forceinline__ void store_line(void *p, u32 a, u32 b, u32 flag) {
    weft_emu_aligned(p, 16, "a misaligned line");
    weft_emu::step();
    __atomic_store_n((u64 *)p, a | (u64)flag << 32, __ATOMIC_RELAXED);
    weft_emu::step();
    __atomic_store_n((u64 *)p + 1, b | (u64)flag << 32, __ATOMIC_RELAXED);
}
__forceinline__ void load_line(const void *p, u32 &a, u32 &flagA, u32 &b, u32 &flagB) {
    weft_emu_aligned(p, 16, "a misaligned line");
    u64 first = __atomic_load_n((const u64 *)p, __ATOMIC_ACQUIRE);
    weft_emu::step();
    u64 second = __atomic_load_n((const u64 *)p + 1, __ATOMIC_ACQUIRE);
    a = (u32)first;
    flagA = (u32)(first >> 32);
    b = (u32)second;
    flagB = (u32)(second >> 32);
    weft_emu::poll();
}
__forceinline__ u64 count_one(u64 *p) {
    weft_emu::step();
    return __atomic_fetch_add(p, 1, __ATOMIC_ACQ_REL);
}
__forceinline__ void add_relaxed(u64 *p, u64 n) {
    weft_emu::step();
    __atomic_fetch_add(p, n, __ATOMIC_RELAXED);
}
template <class V> __forceinline__ V load_stream(const V *p) {
    weft_emu_aligned(p, sizeof(V), "a misaligned load");
    return *p;
}

__forceinline__ u64 clock_ns() { return weft_emu_register_globaltimer(); }
__forceinline__ u32 clock_cycles() { return weft_emu_register_clock(); }
__forceinline__ void follow() {} // a launch begins when the one in front has ended
template <int ID> __forceinline__ void sync_some(u32 threads) { weft_emu::barrier(ID, threads, false); }

// narrow rounds a float's magnitude to BITS of mantissa below exponents of BIAS, to nearest even; most is for what is too large.
template <int BITS, int BIAS> __forceinline__ u32 weft_emu_narrow(u32 magnitude, u32 most) {
    int e = (int)(magnitude >> 23) - 127 + BIAS;
    u32 full = (magnitude & 0x7fffff) | (magnitude >> 23 ? 0x800000 : 0), shift = 23 - BITS, base = 0;
    if (e >= 1)
        base = (u32)(e - 1) << BITS;
    else
        shift += 1 - e;
    if (shift > 31)
        return 0;
    u32 q = full >> shift, rest = full & ((1u << shift) - 1), half = 1u << (shift - 1);
    q += rest > half || (rest == half && (q & 1));
    return base + q < most ? base + q : most;
}

__forceinline__ float f16_up(u16 x) {
    u32 sign = (u32)(x & 0x8000) << 16, exponent = x >> 10 & 31, mantissa = x & 0x3ff;
    if (exponent == 31)
        return __uint_as_float(sign | 0x7f800000 | mantissa << 13 | (mantissa ? 0x400000 : 0));
    if (exponent == 0)
        return __uint_as_float(sign | __float_as_uint((float)mantissa * 0x1p-24f));
    return __uint_as_float(sign | (exponent + 112) << 23 | mantissa << 13);
}
__forceinline__ u16 f16_down(float f) {
    u32 b = __float_as_uint(f), magnitude = b & 0x7fffffff;
    if (magnitude > 0x7f800000)
        return 0x7fff;
    return (b >> 16 & 0x8000) | weft_emu_narrow<10, 15>(magnitude, 0x7c00);
}
__forceinline__ u16 bf16_down(float f) {
    u32 b = __float_as_uint(f);
    if ((b & 0x7fffffff) > 0x7f800000)
        return 0x7fff;
    return (b + 0x7fff + (b >> 16 & 1)) >> 16;
}
__forceinline__ u8 weft_emu_e4m3(float f) {
    u32 b = __float_as_uint(f), magnitude = b & 0x7fffffff;
    if (magnitude > 0x7f800000)
        return 0x7f;
    return (b >> 24 & 0x80) | weft_emu_narrow<3, 7>(magnitude, 0x7e);
}
__forceinline__ u16 e4m3_pair(float low, float high) { return weft_emu_e4m3(low) | (u16)weft_emu_e4m3(high) << 8; }
__forceinline__ float min_nan(float a, float b) { return a != a || b != b ? __uint_as_float(0x7fffffff) : fminf(a, b); }
__forceinline__ float max_nan(float a, float b) { return a != a || b != b ? __uint_as_float(0x7fffffff) : fmaxf(a, b); }

#include "bulk.h"
