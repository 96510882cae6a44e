// Arithmetic: what CUDA has as functions. Rounding is to nearest even, subnormal numbers are kept and nothing is contracted, as
// in weft's kernels on a GPU. (The compiler is given -ffp-contract=off.)
#pragma once

template <class T, class F> __forceinline__ T weft_emu_bits(F f) {
    static_assert(sizeof(T) == sizeof(F), "bits of another size");
    T t;
    __builtin_memcpy(&t, &f, sizeof t);
    return t;
}

__forceinline__ unsigned __float_as_uint(float f) { return weft_emu_bits<unsigned>(f); }
__forceinline__ int __float_as_int(float f) { return weft_emu_bits<int>(f); }
__forceinline__ float __uint_as_float(unsigned u) { return weft_emu_bits<float>(u); }
__forceinline__ float __int_as_float(int i) { return weft_emu_bits<float>(i); }
__forceinline__ float __fadd_rn(float a, float b) { return a + b; }
__forceinline__ float __fsub_rn(float a, float b) { return a - b; }
__forceinline__ float __fmul_rn(float a, float b) { return a * b; }
__forceinline__ float __fdiv_rn(float a, float b) { return a / b; }
__forceinline__ float __fsqrt_rn(float a) { return __builtin_sqrtf(a); }
__forceinline__ float __fmaf_rn(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
__forceinline__ float fabsf(float a) { return __builtin_fabsf(a); }
// Of a number and NaN these are the number.
__forceinline__ float fmaxf(float a, float b) { return a != a ? b : b != b ? a : a > b ? a : b > a ? b : __uint_as_float(__float_as_uint(a) & __float_as_uint(b)); }
__forceinline__ float fminf(float a, float b) { return a != a ? b : b != b ? a : a < b ? a : b < a ? b : __uint_as_float(__float_as_uint(a) | __float_as_uint(b)); }

#define WEFT_EMU_PAIR(R, A, B)                                                                                                 \
    __forceinline__ R min(A a, B b) { return (R)a < (R)b ? (R)a : (R)b; }                                                      \
    __forceinline__ R max(A a, B b) { return (R)a > (R)b ? (R)a : (R)b; }
WEFT_EMU_PAIR(int, int, int)
WEFT_EMU_PAIR(unsigned, unsigned, unsigned)
WEFT_EMU_PAIR(unsigned, int, unsigned)
WEFT_EMU_PAIR(unsigned, unsigned, int)
WEFT_EMU_PAIR(long, long, long)
WEFT_EMU_PAIR(unsigned long, unsigned long, unsigned long)
WEFT_EMU_PAIR(unsigned long, long, unsigned long)
WEFT_EMU_PAIR(unsigned long, unsigned long, long)
WEFT_EMU_PAIR(long long, long long, long long)
WEFT_EMU_PAIR(unsigned long long, unsigned long long, unsigned long long)
WEFT_EMU_PAIR(unsigned long long, long long, unsigned long long)
WEFT_EMU_PAIR(unsigned long long, unsigned long long, long long)
#undef WEFT_EMU_PAIR
__forceinline__ float min(float a, float b) { return fminf(a, b); }
__forceinline__ float max(float a, float b) { return fmaxf(a, b); }

__forceinline__ int __popc(unsigned v) { return __builtin_popcount(v); }
__forceinline__ int __popcll(unsigned long long v) { return __builtin_popcountll(v); }
__forceinline__ int __ffs(int v) { return __builtin_ffs(v); }
__forceinline__ int __ffsll(long long v) { return __builtin_ffsll(v); }
__forceinline__ int __clz(int v) { return v ? __builtin_clz((unsigned)v) : 32; }
__forceinline__ unsigned __umulhi(unsigned a, unsigned b) { return (unsigned long long)a * b >> 32; }
__forceinline__ unsigned long long __umul64hi(unsigned long long a, unsigned long long b) { return (unsigned __int128)a * b >> 64; }
