// Partial rows of this rank's expert rows, sums plus bias, and copies: see exchange/partials.go and exchange/sums.go for the twins.
// Nothing here waits for a peer.

#ifndef PARTIAL_THREADS
#define PARTIAL_THREADS 768 // at most
#endif

// PartialArgs are the parameters of weft_partials. y [slots, hidden], or [rows, hidden] to copy.
struct PartialArgs {
    u64 dst, y, slot, weight, numRows;
    i64 dstStride, yStride; // bytes
    u32 topK, hidden, dtype, wide, copy, pad; // wide: dst is fp32, of values rounded to dtype
};

// nth_there is the place of the lane'th of the slots that are there: bits of with.
__device__ __forceinline__ u32 nth_there(u32 with, u32 lane) {
    u32 at = 0;
#pragma unroll
    for (u32 b = 16; b > 0; b /= 2)
        if (__popc(with & ((1u << (at + b)) - 1)) <= lane)
            at += b;
    return at;
}

// sum_rows makes partial rows of the type of y. Most rows have one or two slots (eight choices on eight ranks make 1.5), so a
// warp loads up to eight steps of them at a time; the next row's slots are on their way meanwhile.
template <class N> __device__ void sum_rows(const PartialArgs &d) {
    typedef typename N::Raw Raw;
    u32 lane = threadIdx.x & 31, warps = gridDim.x * (blockDim.x / 32), rows = *(const u32 *)d.numRows;
    bool vector = ((d.dst | (u64)d.dstStride | d.y | (u64)d.yStride | (u64)d.hidden * sizeof(Raw)) & 15) == 0;
    u32 units = vector ? d.hidden * sizeof(Raw) / 16 : d.hidden;
    const Target to = {d.dst, {}, d.dstStride, {}, 0};
    u32 parts = rows == 0 ? 1 : max(1u, min(warps / rows, (units + 31) / 32)); // of a row, where rows are few
    u32 i = threadIdx.x / 32 * gridDim.x + blockIdx.x, end = rows * parts;
    const int *slots = (const int *)d.slot + lane; // of the lane's choice
    int next = i < end && lane < d.topK ? slots[(u64)(i / parts) * d.topK] : -1;
    for (; i < end; i += warps) {
        u32 row = i / parts, part = i % parts, lo = units * part / parts, hi = units * (part + 1) / parts;
        u32 with = __ballot_sync(~0u, next >= 0), n = __popc(with), at = nth_there(with, lane);
        int slot = __shfl_sync(~0u, next, at);
        float weight = lane < n ? ((const float *)d.weight)[slot] : 0;
        if (i + warps < end && lane < d.topK)
            next = slots[(u64)((i + warps) / parts) * d.topK];
        u64 from = d.y + (i64)slot * d.yStride;
        if (!vector) {
            Sum<N, INVARIANT_SUM, Raw>{to, from, weight, 0, n, row, hi}.any(lo);
            continue;
        }
        Sum<N, INVARIANT_SUM, uint4> sum = {to, from, weight, 0, n, row, hi};
        switch (n) {
        case 1: sum.template exactly<1>(lo); break;
        case 2: sum.template exactly<2>(lo); break;
        case 3: sum.template exactly<3>(lo); break;
        case 4: sum.template exactly<4>(lo); break;
        default: sum.any(lo);
        }
    }
}

// partials is the general form: sums in fp32 memory, and copies.
template <class N> __device__ void partials(const PartialArgs &d) {
    if (!d.copy && !d.wide) {
        sum_rows<N>(d);
        return;
    }
    typedef typename N::Raw Raw;
    u32 lane = threadIdx.x & 31, warps = gridDim.x * (blockDim.x / 32), rows = *(const u32 *)d.numRows;
    const int W = 16 / sizeof(Raw);
    bool vector = ((d.dst | (u64)d.dstStride | d.y | (u64)d.yStride | (u64)d.hidden * sizeof(Raw)) & 15) == 0;
    u32 units = vector ? d.hidden / W : d.hidden;
    for (u64 row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32; row < rows; row += warps) {
        int slot = lane < d.topK ? ((const int *)d.slot)[row * d.topK + lane] : -1;
        u32 with = __ballot_sync(~0u, slot >= 0);
        float weight = slot >= 0 && !d.copy ? ((const float *)d.weight)[slot] : 1.f;
        u64 from = d.y + (i64)(d.copy ? (i64)row : (i64)slot) * d.yStride;
        u8 *to = (u8 *)d.dst + row * d.dstStride;
        if (d.copy) {
            if (with != 0 && d.dst == d.y)
                continue; // it is there already
            with &= 0u - with; // one of them says that the row is there
        }
        for (u32 u = lane; u < (units + 31) / 32 * 32; u += 32) {
            float acc[W] = {};
            for (u32 rest = with; rest != 0; rest &= rest - 1) {
                u32 i = __ffs(rest) - 1;
                u64 p = __shfl_sync(~0u, from, i);
                float scale = __shfl_sync(~0u, weight, i);
                if (u >= units)
                    continue;
                union { uint4 q; Raw x[W]; } v;
                if (vector)
                    v.q = load_stream((const uint4 *)p + u);
                else
                    v.x[0] = ((const Raw *)p)[u];
#pragma unroll
                for (int w = 0; w < W; w++)
                    if (w == 0 || vector)
                        acc[w] = d.copy ? N::up(v.x[w]) : plus(acc[w], times(scale, N::up(v.x[w])));
            }
            if (u >= units)
                continue;
            union { uint4 q; Raw x[W]; } out;
#pragma unroll
            for (int w = 0; w < W; w++)
                out.x[w] = N::down(acc[w]);
            if (d.wide) {
#pragma unroll
                for (int w = 0; w < W; w++)
                    if (w == 0 || vector)
                        ((float *)to)[vector ? u * W + w : u] = N::up(out.x[w]);
            } else if (vector) {
                ((uint4 *)to)[u] = out.q;
            } else {
                ((Raw *)to)[u] = out.x[0];
            }
        }
    }
}

// weft_partials makes this rank's partial rows: for each received row the sum over its slots in k order, fp32 from +0, products
// rounded; zeros without slots. To copy, it takes the rows of y instead. It waits for nobody.
extern "C" __global__ void __launch_bounds__(PARTIAL_THREADS, 1) weft_partials(const __grid_constant__ PartialArgs d) {
    follow();
    switch (d.dtype) {
    case F32: partials<NumF32>(d); break;
    case BF16: partials<NumBF16>(d); break;
    default: partials<NumF16>(d);
    }
}

// BiasArgs are the parameters of weft_bias.
struct BiasArgs {
    u64 sums, out, bias[2], numTokens;
    i64 outStride, biasStride[2]; // bytes
    u32 numBias, hidden, dtype, maxTokens;
};

template <class N> __device__ void add_bias(const BiasArgs &d) {
    typedef typename N::Raw Raw;
    u32 tokens = *(const u32 *)d.numTokens;
    u64 n = tokens > d.maxTokens ? 0 : (u64)tokens * d.hidden; // a wrong number was reported before
    for (u64 i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        u64 row = i / d.hidden, at = i - row * d.hidden;
        float acc = plus(0.f, ((const float *)d.sums)[i]);
        for (u32 b = 0; b < d.numBias; b++)
            acc = plus(acc, N::up(((const Raw *)(d.bias[b] + row * d.biasStride[b]))[at]));
        ((Raw *)(d.out + row * d.outStride))[at] = N::down(acc);
    }
}

// weft_bias rounds sums [numTokens, hidden] of fp32 plus up to two bias rows.
extern "C" __global__ void __launch_bounds__(THREADS, 1) weft_bias(const __grid_constant__ BiasArgs d) {
    follow();
    switch (d.dtype) {
    case F32: add_bias<NumF32>(d); break;
    case BF16: add_bias<NumBF16>(d); break;
    default: add_bias<NumF16>(d);
    }
}
