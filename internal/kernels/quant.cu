// Rows narrowed to e4m3 with one fp32 scale for each 128 values: the largest magnitude that is no NaN, / 448, or 1 when that
// is zero. The same divisions and the same rounding as the Go twin.

#define GROUP 128u

// load4 widens values [c, c + 4) of a row of hidden values; those beyond it are 0.
__device__ __forceinline__ void load4(float v[4], const u8 *row, u32 dtype, u32 c, u32 hidden, bool vector) {
    if (vector && c + 4 <= hidden) {
        if (dtype == F32) {
            uint4 q = load_stream((const uint4 *)row + c / 4);
            v[0] = __uint_as_float(q.x), v[1] = __uint_as_float(q.y), v[2] = __uint_as_float(q.z), v[3] = __uint_as_float(q.w);
            return;
        }
        union { uint2 q; u16 x[4]; } u;
        u.q = load_stream((const uint2 *)row + c / 4);
#pragma unroll
        for (int i = 0; i < 4; i++)
            v[i] = dtype == BF16 ? NumBF16::up(u.x[i]) : NumF16::up(u.x[i]);
        return;
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        v[i] = 0;
        if (c + i < hidden)
            v[i] = dtype == F32    ? ((const float *)row)[c + i]
                   : dtype == BF16 ? NumBF16::up(((const u16 *)row)[c + i])
                                   : NumF16::up(((const u16 *)row)[c + i]);
    }
}

// quantise4 returns four values in e4m3 and the scale of their group. A whole warp, which holds the group.
__device__ __forceinline__ u32 quantise4(const float v[4], float &scale) {
    float most = 0;
#pragma unroll
    for (int i = 0; i < 4; i++)
        most = fmaxf(most, fabsf(v[i])); // drops NaN
#pragma unroll
    for (int i = 16; i > 0; i /= 2)
        most = fmaxf(most, __shfl_xor_sync(~0u, most, i));
    scale = __fdiv_rn(most, 448.f);
    if (!(scale > 0))
        scale = 1;
    float x[4];
    bool odd = false;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        x[i] = __fdiv_rn(v[i], scale);
        odd = odd || x[i] != x[i];
    }
    u32 q = 0;
#if __CUDA_ARCH__ >= 890
    if (!odd) { // the instruction drops the sign of NaN
        u16 lo = e4m3_pair(x[0], x[1]), hi = e4m3_pair(x[2], x[3]);
        return lo | (u32)hi << 16;
    }
#endif
#pragma unroll
    for (int i = 0; i < 4; i++)
        q |= (u32)NumE4M3::down(x[i]) << 8 * i;
    return q;
}

// store4 writes four bytes of columns [c, c + 4).
__device__ __forceinline__ void store4(u8 *row, u32 q, u32 c, u32 hidden) {
    if ((hidden & 3) == 0) {
        if (c < hidden)
            *(u32 *)(row + c) = q;
        return;
    }
#pragma unroll
    for (u32 i = 0; i < 4; i++)
        if (c + i < hidden)
            row[c + i] = (u8)(q >> 8 * i);
}

struct QuantArgs {
    u64 src, q, scales, numTokens; // numTokens: int, or 0
    i64 srcStride;                 // bytes
    u32 rows, hidden, dtype, pad;
};

__device__ __forceinline__ bool vectors4(u64 src, i64 stride, u32 dtype) {
    return ((src | (u64)stride) & (dtype == F32 ? 15 : 7)) == 0;
}

// weft_quantise: a warp for each group of 128 values. q [rows, hidden] and scales [rows, groups] without gaps.
extern "C" __global__ void __launch_bounds__(THREADS, 1) weft_quantise(const __grid_constant__ QuantArgs d) {
    follow();
    u32 groups = (d.hidden + GROUP - 1) / GROUP, lane = threadIdx.x & 31;
    u32 rows = d.rows;
    if (d.numTokens) {
        int n = *(const int *)d.numTokens;
        rows = n < 0 ? 0 : n < (int)rows ? n : rows;
    }
    bool vector = vectors4(d.src, d.srcStride, d.dtype);
    for (u64 i = (blockIdx.x * blockDim.x + threadIdx.x) / 32; i < (u64)rows * groups; i += gridDim.x * (blockDim.x / 32)) {
        u64 row = i / groups;
        u32 g = i % groups;
        float v[4], scale;
        load4(v, (const u8 *)d.src + row * d.srcStride, d.dtype, g * GROUP + lane * 4, d.hidden, vector);
        u32 q = quantise4(v, scale);
        store4((u8 *)d.q + row * d.hidden, q, g * GROUP + lane * 4, d.hidden);
        if (lane == 0)
            ((float *)d.scales)[i] = scale;
    }
}
