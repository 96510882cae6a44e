// Element types: widening to fp32 and the one rounding back. Integers reduce in their own width. No contraction into FMA:
// sums are __fadd_rn in rank order from +0, as the Go twins do them.

// narrow8 encodes f in 8 bits with MAN bits of mantissa, to nearest even, saturating.
template <int MAN, bool INF> __device__ __noinline__ u8 narrow8(float f) {
    const int EXP = 7 - MAN;
    u32 b = __float_as_uint(f), sign = b >> 31 << 7, mag = b & 0x7fffffff;
    const u32 top = ((1u << EXP) - 1) << MAN;
    const u32 nan = INF ? top | 1u << (MAN - 1) : top | ((1u << MAN) - 1);
    const u32 most = INF ? top - 1 : nan - 1;
    if (mag > 0x7f800000)
        return sign | nan;
    if (mag == 0x7f800000)
        return sign | (INF ? top : most);
    int e = (int)(mag >> 23) - 127 + (1 << (EXP - 1)) - 1;
    u32 shift = 23 - MAN, full = (mag & 0x7fffff) | 0x800000, base = 0;
    if (mag >> 23 == 0)
        return sign;
    if (e >= 1)
        base = (u32)(e - 1) << MAN;
    else if (1 - e > 25)
        return sign;
    else
        shift += 1 - e;
    if (shift > 31)
        return sign;
    u32 q = full >> shift, rest = full & ((1u << shift) - 1), half = 1u << (shift - 1);
    if (rest > half || (rest == half && (q & 1)))
        q++;
    u32 out = base + q;
    return sign | (out > most ? most : out);
}

template <class A> struct Float {
    typedef float Acc;
    static const bool isFloat = true;
};
struct NumF32 : Float<float> {
    typedef u32 Raw;
    static __device__ float up(u32 x) { return __uint_as_float(x); }
    static __device__ u32 down(float f) { return __float_as_uint(f); }
};
struct NumBF16 : Float<float> {
    typedef u16 Raw;
    static __device__ float up(u16 x) { return __uint_as_float((u32)x << 16); }
    static __device__ u16 down(float f) { return bf16_down(f); }
};
struct NumF16 : Float<float> {
    typedef u16 Raw;
    static __device__ float up(u16 x) { return f16_up(x); }
    static __device__ u16 down(float f) { return f16_down(f); }
};
struct NumE5M2 : Float<float> {
    typedef u8 Raw;
    static __device__ float up(u8 x) { return f16_up((u16)((u16)x << 8)); } // the upper byte of an fp16
    static __device__ u8 down(float f) { return narrow8<2, true>(f); }
};
struct NumE4M3 : Float<float> {
    typedef u8 Raw;
    static __device__ float up(u8 x) {
        u32 sign = (u32)(x & 0x80) << 24, mag = x & 0x7f;
        if (mag == 0x7f)
            return __uint_as_float(sign | 0x7fc00000);
        // As an fp32 exponent the field is 120 too small; the multiplication is exact, of subnormals too.
        return __uint_as_float(sign | __float_as_uint(__fmul_rn(__uint_as_float(mag << 20), 0x1p120f)));
    }
    static __device__ u8 down(float f) { return narrow8<3, false>(f); }
};
template <class R, class S> struct Int {
    typedef R Raw;
    typedef S Acc;
    static const bool isFloat = false;
    static __device__ S up(R x) { return (S)x; }
    static __device__ R down(S x) { return (R)x; }
};

__device__ __forceinline__ float plus(float a, float b) { return __fadd_rn(a, b); }
__device__ __forceinline__ int plus(int a, int b) { return (int)((u32)a + (u32)b); }
__device__ __forceinline__ i64 plus(i64 a, i64 b) { return (i64)((u64)a + (u64)b); }
__device__ __forceinline__ float times(float a, float b) { return __fmul_rn(a, b); }
__device__ __forceinline__ int times(int a, int b) { return (int)((u32)a * (u32)b); }
__device__ __forceinline__ i64 times(i64 a, i64 b) { return (i64)((u64)a * (u64)b); }
__device__ __forceinline__ float least(float a, float b) { return min_nan(a, b); }
__device__ __forceinline__ float most(float a, float b) { return max_nan(a, b); }
__device__ __forceinline__ int least(int a, int b) { return a < b ? a : b; }
__device__ __forceinline__ int most(int a, int b) { return a > b ? a : b; }
__device__ __forceinline__ i64 least(i64 a, i64 b) { return a < b ? a : b; }
__device__ __forceinline__ i64 most(i64 a, i64 b) { return a > b ? a : b; }
__device__ __forceinline__ float over(float a, u32 n) { return __fdiv_rn(a, (float)n); }
__device__ __forceinline__ int over(int a, u32) { return a; }
__device__ __forceinline__ i64 over(i64 a, u32) { return a; }

// join is acc (op) x.
template <class A> __device__ __forceinline__ A join(A acc, A x, u32 op) {
    switch (op) {
    case PROD: return times(acc, x);
    case MIN: return least(acc, x);
    case MAX: return most(acc, x);
    default: return plus(acc, x);
    }
}
