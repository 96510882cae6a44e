// Combine: each source pulls what came of its tokens from the ranks that made it, adds up in fp32 and rounds once.
//
//	PARTIALS   one partial row of each rank, in rank order                     bytes N r (1 + D)
//	EXPERTS    every expert row: each rank's in k order from +0, rounded to the payload type as that rank would have
//	           rounded its partial row, then in rank order: the same bits      bytes N r (1 + topK)
//	INVARIANT  every expert row, in k order
//
// Products are rounded before they are added. Rows of a bias come last. A row is read by the one warp that needs it, 16 bytes
// at a time with the loads of eight rows in flight; only rows that a token's list names are read, so that what lies in
// others (NaN) touches nothing. The entry carries where each rank's rows are. Launch: as for dispatch.

enum { PARTIALS, EXPERTS, INVARIANT_SUM };

struct CombineArgs {
    Args meet; // part 0: this rank's rows
    u64 terms, rows, numTokens;
    u64 out, bias[2];
    i64 outStride, biasStride[2]; // bytes
    u32 mode, numBias, topK, fan, dtype, hidden;
};

// Sum adds up rows. lane i of a warp holds row i of the list: where, weight, rank.
template <class N, int MODE, int U> struct Sum {
    typedef typename N::Raw Raw;

    // vectors sums units [lo, hi) of V, of W values.
    template <class V>
    static __device__ __forceinline__ void vectors(const CombineArgs &d, u64 row, float weight, int rank, u32 n, u32 token, u32 lo, u32 hi) {
        const int W = sizeof(V) / sizeof(Raw), DEEP = 8;
        union Unit { V v; Raw x[W]; };
        u32 lane = threadIdx.x & 31;
        for (u32 u0 = lo; u0 < hi; u0 += 32 * U) {
            float acc[U][W], part[U][W];
#pragma unroll
            for (int u = 0; u < U; u++)
#pragma unroll
                for (int w = 0; w < W; w++)
                    acc[u][w] = part[u][w] = 0;
            int current = -1;
            for (u32 s = 0; s < n; s += DEEP) {
                Unit q[DEEP][U];
#pragma unroll
                for (int i = 0; i < DEEP; i++)
                    if (s + i < n) {
                        const V *from = (const V *)__shfl_sync(~0u, row, s + i) + u0 + lane;
#pragma unroll
                        for (int u = 0; u < U; u++)
                            if (u0 + u * 32 + lane < hi)
                                q[i][u].v = load_stream(from + u * 32);
                    }
#pragma unroll
                for (int i = 0; i < DEEP; i++) {
                    if (s + i >= n)
                        continue;
                    float scale = MODE == PARTIALS ? 0 : __shfl_sync(~0u, weight, s + i);
                    int from = MODE == EXPERTS ? __shfl_sync(~0u, rank, s + i) : 0;
                    bool next = MODE == EXPERTS && from != current && current >= 0;
                    current = from;
#pragma unroll
                    for (int u = 0; u < U; u++)
#pragma unroll
                        for (int w = 0; w < W; w++) {
                            float v = N::up(q[i][u].x[w]);
                            if (MODE == PARTIALS) {
                                acc[u][w] = plus(acc[u][w], v);
                            } else if (MODE == INVARIANT_SUM) {
                                acc[u][w] = plus(acc[u][w], times(scale, v));
                            } else {
                                if (next) {
                                    acc[u][w] = plus(acc[u][w], N::up(N::down(part[u][w])));
                                    part[u][w] = 0;
                                }
                                part[u][w] = plus(part[u][w], times(scale, v));
                            }
                        }
                }
            }
            if (MODE == EXPERTS && n > 0)
#pragma unroll
                for (int u = 0; u < U; u++)
#pragma unroll
                    for (int w = 0; w < W; w++)
                        acc[u][w] = plus(acc[u][w], N::up(N::down(part[u][w])));
#pragma unroll
            for (int u = 0; u < U; u++) {
                u32 at = u0 + u * 32 + lane;
                if (at >= hi)
                    continue;
                for (u32 b = 0; b < d.numBias; b++) {
                    Unit x;
                    x.v = load_stream((const V *)(d.bias[b] + (u64)token * d.biasStride[b]) + at);
#pragma unroll
                    for (int w = 0; w < W; w++)
                        acc[u][w] = plus(acc[u][w], N::up(x.x[w]));
                }
                Unit out;
#pragma unroll
                for (int w = 0; w < W; w++)
                    out.x[w] = N::down(acc[u][w]);
                ((V *)(d.out + (u64)token * d.outStride))[at] = out.v;
            }
        }
    }
};

// List is what comes back to one token, one row in each lane.
struct List {
    u64 row;
    float weight;
    int rank;
    u32 n;
};

__device__ __forceinline__ List list_of(const CombineArgs &d, const Entry *entries, u32 token) {
    u32 lane = threadIdx.x & 31;
    List l = {0, 0, -1, 0};
    int at = 0;
    if (d.mode == PARTIALS) {
        if (lane < d.fan) {
            Sent v = ((const Sent *)d.rows)[(u64)token * d.fan + lane];
            at = v.row;
            l.rank = v.rank;
        }
    } else if (lane < d.topK) {
        Term v = ((const Term *)d.terms)[(u64)token * d.topK + lane];
        at = v.slot;
        l.rank = v.rank;
        l.weight = v.weight;
    }
    u32 ends = __ballot_sync(~0u, l.rank < 0);
    l.n = ends ? __ffs(ends) - 1 : 32;
    if (lane < l.n)
        l.row = entries[l.rank].parts[0].src + (i64)at * entries[l.rank].parts[0].srcStride;
    return l;
}

template <class N, int MODE> __device__ __noinline__ void combine_all(const CombineArgs &d, const Entry *entries, u32 tokens, bool vector) {
    const u32 W = 16 / sizeof(typename N::Raw);
    u32 warp = threadIdx.x / 32, warps = blockDim.x / 32;
    u32 all = gridDim.x * warps, id = warp * gridDim.x + blockIdx.x; // neighbours on different blocks: few tokens spread
    u32 units = vector ? d.hidden / W : d.hidden, per = vector ? 32 : 32;
    u32 parts = tokens == 0 ? 1 : all / tokens, most = (units + per - 1) / per;
    parts = parts > most ? most : parts;
    parts = parts < 1 ? 1 : parts;
    for (u64 i = id; i < (u64)tokens * parts; i += all) {
        u32 token = i / parts, part = i % parts;
        List l = list_of(d, entries, token);
        u32 lo = (u32)((u64)units * part / parts), hi = (u32)((u64)units * (part + 1) / parts);
        if (vector)
            Sum<N, MODE, MODE == PARTIALS ? 2 : 1>::template vectors<uint4>(d, l.row, l.weight, l.rank, l.n, token, lo, hi);
        else
            Sum<N, MODE, 1>::template vectors<typename N::Raw>(d, l.row, l.weight, l.rank, l.n, token, lo, hi);
    }
}

template <class N> __device__ void combine_mode(const CombineArgs &d, const Entry *entries, u32 tokens, bool vector) {
    switch (d.mode) {
    case PARTIALS: combine_all<N, PARTIALS>(d, entries, tokens, vector); break;
    case EXPERTS: combine_all<N, EXPERTS>(d, entries, tokens, vector); break;
    default: combine_all<N, INVARIANT_SUM>(d, entries, tokens, vector);
    }
}

// weft_combine: see above.
extern "C" __global__ void __launch_bounds__(THREADS, 1) weft_combine(const __grid_constant__ CombineArgs d) {
    __shared__ Shared sh;
    __shared__ u32 odd;
    const Args &a = d.meet;
    Ctl *c = a.ctl;
    u32 t = threadIdx.x;
    int state = begin(a, sh, next_epoch(a));
    if (state == LEAVE)
        return;
    if (state == GO) {
        u32 size = d.dtype == F32 ? 4 : 2;
        if (t == 0) {
            u64 bits = d.out | (u64)d.outStride | (u64)d.hidden * size;
            for (u32 i = 0; i < d.numBias; i++)
                bits |= d.bias[i] | (u64)d.biasStride[i];
            odd = (u32)bits & 15;
        }
        __syncthreads();
        if (t < c->size)
            atomicOr(&odd, (u32)(sh.entries[t].parts[0].src | sh.entries[t].parts[0].srcStride) & 15);
        __syncthreads();
        u32 tokens = *(const u32 *)d.numTokens;
        switch (d.dtype) {
        case F32: combine_mode<NumF32>(d, sh.entries, tokens, odd == 0); break;
        case BF16: combine_mode<NumBF16>(d, sh.entries, tokens, odd == 0); break;
        default: combine_mode<NumF16>(d, sh.entries, tokens, odd == 0);
        }
    }
    finish(a, sh, false);
}

// PartialArgs are the parameters of weft_partials. y [slots, hidden], or [rows, hidden] to copy.
struct PartialArgs {
    u64 dst, y, slot, weight, numRows;
    i64 dstStride, yStride; // bytes
    u32 topK, hidden, dtype, wide, copy, pad; // wide: dst is fp32, of values rounded to dtype
};

template <class N> __device__ void partials(const PartialArgs &d) {
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
extern "C" __global__ void __launch_bounds__(THREADS, 1) weft_partials(const __grid_constant__ PartialArgs d) {
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
    switch (d.dtype) {
    case F32: add_bias<NumF32>(d); break;
    case BF16: add_bias<NumBF16>(d); break;
    default: add_bias<NumF16>(d);
    }
}
