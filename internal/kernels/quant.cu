// Rows narrowed to e4m3 with one fp32 scale for each 128 values: the largest magnitude that is no NaN, / 448, or 1 when that
// is zero. The same quotients and the same rounding as the Go twin, bit for bit.
//
// A warp takes 256 values a step, 8 in each lane and a group in each half, and NARROW_DEEP steps at once: then a lane finds the scale
// of one group, and lends it to the others. Quotients are products with the scale's inverse that are corrected twice:
//
//	q = RN(v r), then twice q = RN(q - r RN(q s - v)), where r = RN(1 / s)
//
// With r correctly rounded, and q off by less than an ulp as the first correction leaves it, the second gives RN(v / s)
// (Markstein 1990), if the remainder is exact. It is where e4m3 is not 0, for s >= LEAST_SCALE: then |v / s| >= 2^-10, and the
// remainder is a multiple of ulp(q) ulp(s) >= 2^(-11-23) 2^(-90-23) >= 2^-149. Smaller quotients are off by no more than 2^-150 r
// and 2^-22 of themselves, so that they too stay below 2^-10, and e4m3 rounds them to 0. The sign is v's: for q = 0 a remainder
// is -v, or +0 for v = 0, which leaves -0 + q. Nothing overflows: |q| < 449 and r < 2^91. What has other scales, NaN or
// infinities is divided.

#define GROUP 128u
#define NARROW_STEP 256u
#define NARROW_DEEP 4u
#define LEAST_SCALE 0x1p-90f

// Eight is eight values of a row.
template <class N> union Eight {
    static const int UNITS = sizeof(typename N::Raw) / 2;
    uint4 v[UNITS];
    typename N::Raw x[8];
};

// load8 loads values [c, c + 8) of a row of hidden values; those beyond it are 0.
template <class N> __device__ __forceinline__ void load8(Eight<N> &x, const u8 *row, u32 c, u32 hidden, bool vector) {
    typedef typename N::Raw Raw;
    if (vector && c + 8 <= hidden) {
#pragma unroll
        for (int i = 0; i < Eight<N>::UNITS; i++)
            x.v[i] = load_stream((const uint4 *)((const Raw *)row + c) + i);
        return;
    }
#pragma unroll
    for (int i = 0; i < 8; i++) {
        x.x[i] = 0;
        if (c + i < hidden)
            x.x[i] = ((const Raw *)row)[c + i];
    }
}

// load_steps begins to load steps [s, end) of a row, at most NARROW_DEEP.
template <class N> __device__ __forceinline__ void load_steps(Eight<N> x[NARROW_DEEP], const u8 *row, u32 s, u32 end, u32 hidden, bool vector) {
#pragma unroll
    for (u32 k = 0; k < NARROW_DEEP; k++)
        if (s + k < end)
            load8<N>(x[k], row, (s + k) * NARROW_STEP + (threadIdx.x & 31) * 8, hidden, vector);
}

// largest is the largest magnitude of a lane's values; NaN if one is.
template <class N> __device__ __forceinline__ float largest(const Eight<N> &x) {
    float most = fabsf(N::up(x.x[0]));
#pragma unroll
    for (int i = 1; i < 8; i++)
        most = max_nan(most, fabsf(N::up(x.x[i])));
    return most;
}

__device__ __forceinline__ float scale_of(float most) {
    float scale = __fdiv_rn(most, 448.f);
    return scale > 0 ? scale : 1;
}

// Narrowed is a lane's eight values in e4m3 and the scale of their group.
struct Narrowed {
    uint2 q;
    float scale;
};

// divided narrows a step of any values by divisions. A whole warp.
template <class N> __device__ __noinline__ Narrowed divided(Eight<N> x) {
    float most = 0;
#pragma unroll
    for (int i = 0; i < 8; i++)
        most = fmaxf(most, fabsf(N::up(x.x[i]))); // drops NaN
#pragma unroll
    for (int i = 8; i > 0; i /= 2)
        most = fmaxf(most, __shfl_xor_sync(~0u, most, i));
    Narrowed n;
    n.scale = scale_of(most);
    u32 q[2] = {0, 0};
#pragma unroll
    for (int i = 0; i < 8; i++) // not by the instruction, which drops the sign of NaN
        q[i / 4] |= (u32)NumE4M3::down(__fdiv_rn(N::up(x.x[i]), n.scale)) << i % 4 * 8;
    n.q = make_uint2(q[0], q[1]);
    return n;
}

__device__ __forceinline__ float ratio(float v, float scale, float inverse) {
    float q = __fmul_rn(v, inverse);
    q = __fmaf_rn(-__fmaf_rn(q, scale, -v), inverse, q);
    return __fmaf_rn(-__fmaf_rn(q, scale, -v), inverse, q);
}

// e4m3_four narrows four numbers.
__device__ __forceinline__ u32 e4m3_four(float a, float b, float c, float d) {
#if __CUDA_ARCH__ >= 890
    return e4m3_pair(a, b) | (u32)e4m3_pair(c, d) << 16;
#else
    return NumE4M3::down(a) | (u32)NumE4M3::down(b) << 8 | (u32)NumE4M3::down(c) << 16 | (u32)NumE4M3::down(d) << 24;
#endif
}

// group_of is the group, among those of NARROW_DEEP steps, whose scale quantise gives to this lane.
__device__ __forceinline__ u32 group_of() {
    u32 lane = threadIdx.x & 31;
    return (lane >> 2 & 3) * 2 + lane / 16;
}

// multiplied narrows n steps, or ALL of them, by products, and returns the scale of the lane's group_of; or it returns 0 to all
// lanes, because some must be divided. A whole warp.
template <class N, bool ALL> __device__ __forceinline__ float multiplied(const Eight<N> x[NARROW_DEEP], u32 n, uint2 q[NARROW_DEEP]) {
    static_assert(NARROW_DEEP == 4, "the lanes of a half, by fours");
    u32 lane = threadIdx.x & 31;
    float most[NARROW_DEEP];
#pragma unroll
    for (u32 k = 0; k < NARROW_DEEP; k++)
        most[k] = ALL || k < n ? largest<N>(x[k]) : 0;
    // Half of the lanes go on with half of the steps, twice, and then lanes with the same step.
    bool high = lane & 8, odd = lane & 4;
    float a = high ? most[2] : most[0], b = high ? most[3] : most[1];
    a = max_nan(a, __shfl_xor_sync(~0u, high ? most[0] : most[2], 8));
    b = max_nan(b, __shfl_xor_sync(~0u, high ? most[1] : most[3], 8));
    float send = odd ? a : b;
    a = max_nan(odd ? b : a, __shfl_xor_sync(~0u, send, 4));
    a = max_nan(a, __shfl_xor_sync(~0u, a, 2));
    a = max_nan(a, __shfl_xor_sync(~0u, a, 1));
    float scale = scale_of(a), inverse = __fdiv_rn(1.f, scale);
    if (!__all_sync(~0u, a <= 0x1.fffffep127f && scale >= LEAST_SCALE))
        return 0;
#pragma unroll
    for (u32 k = 0; k < NARROW_DEEP; k++)
        if (ALL || k < n) {
            float s = __shfl_sync(~0u, scale, (lane & 16) + k * 4), r = __shfl_sync(~0u, inverse, (lane & 16) + k * 4), v[8];
#pragma unroll
            for (int i = 0; i < 8; i++)
                v[i] = ratio(N::up(x[k].x[i]), s, r);
            q[k] = make_uint2(e4m3_four(v[0], v[1], v[2], v[3]), e4m3_four(v[4], v[5], v[6], v[7]));
        }
    return scale;
}

// quantise narrows n steps, and returns the scale of the lane's group_of. A whole warp.
template <class N> __device__ __forceinline__ float quantise(const Eight<N> x[NARROW_DEEP], u32 n, uint2 q[NARROW_DEEP]) {
    float scale = n == NARROW_DEEP ? multiplied<N, true>(x, n, q) : multiplied<N, false>(x, n, q);
    if (scale == 0)
#pragma unroll
        for (u32 k = 0; k < NARROW_DEEP; k++)
            if (k < n) {
                Narrowed v = divided<N>(x[k]);
                q[k] = v.q;
                if ((threadIdx.x >> 2 & 3) == k)
                    scale = v.scale;
            }
    return scale;
}

// store8 writes eight bytes of columns [c, c + 8).
__device__ __forceinline__ void store8(u8 *row, uint2 q, u32 c, u32 hidden) {
    if (((hidden | (u32)(u64)row) & 7) == 0) {
        if (c < hidden)
            *(uint2 *)(row + c) = q;
        return;
    }
#pragma unroll
    for (u32 i = 0; i < 8; i++)
        if (c + i < hidden)
            row[c + i] = (u8)((i < 4 ? q.x : q.y) >> i % 4 * 8);
}

struct QuantArgs {
    u64 src, q, scales, numTokens; // numTokens: int, or 0
    i64 srcStride;                 // bytes
    u32 rows, hidden, dtype, pad;
};

// quantise_rows gives each warp up to NARROW_DEEP steps of a row at a time; the next ones are on their way meanwhile.
template <class N> __device__ void quantise_rows(const QuantArgs &d, u32 rows) {
    u32 lane = threadIdx.x & 31, hidden = d.hidden, groups = (hidden + GROUP - 1) / GROUP, steps = (hidden + NARROW_STEP - 1) / NARROW_STEP;
    u32 warps = gridDim.x * (blockDim.x / 32);
    u64 all = (u64)rows * steps;
    u32 take = min(NARROW_DEEP, max(1u, (u32)min(all / warps, (u64)NARROW_DEEP))), parts = (steps + take - 1) / take;
    bool vector = ((d.src | (u64)d.srcStride) & 15) == 0;
    u64 end = (u64)rows * parts, i = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
    Eight<N> next[NARROW_DEEP];
    u64 row = i / parts;
    u32 s = i % parts * take;
    if (i < end)
        load_steps<N>(next, (const u8 *)d.src + (i64)row * d.srcStride, s, min(s + take, steps), hidden, vector);
    while (i < end) {
        Eight<N> x[NARROW_DEEP];
#pragma unroll
        for (u32 k = 0; k < NARROW_DEEP; k++)
            x[k] = next[k];
        u64 nextRow = (i + warps) / parts;
        u32 nextStep = (i + warps) % parts * take, n = min(take, steps - s);
        if (i + warps < end)
            load_steps<N>(next, (const u8 *)d.src + (i64)nextRow * d.srcStride, nextStep, min(nextStep + take, steps), hidden, vector);
        uint2 q[NARROW_DEEP];
        float scale = quantise<N>(x, n, q);
#pragma unroll
        for (u32 k = 0; k < NARROW_DEEP; k++)
            if (k < n)
                store8((u8 *)d.q + row * hidden, q[k], (s + k) * NARROW_STEP + lane * 8, hidden);
        u32 g = group_of();
        if (lane % 4 == 0 && g < 2 * n && s * 2 + g < groups)
            ((float *)d.scales)[row * groups + s * 2 + g] = scale;
        i += warps;
        row = nextRow;
        s = nextStep;
    }
}

// weft_quantise: q [rows, hidden] and scales [rows, groups] without gaps. Bytes: rows read once, and 1 + 1/32 bytes a value written.
extern "C" __global__ void __launch_bounds__(THREADS, 1) weft_quantise(const __grid_constant__ QuantArgs d) {
    follow();
    u32 rows = d.rows;
    if (d.numTokens) {
        int n = *(const int *)d.numTokens;
        rows = n < 0 ? 0 : n < (int)rows ? n : rows;
    }
    switch (d.dtype) {
    case F32: quantise_rows<NumF32>(d, rows); break;
    case BF16: quantise_rows<NumBF16>(d, rows); break;
    default: quantise_rows<NumF16>(d, rows);
    }
}
