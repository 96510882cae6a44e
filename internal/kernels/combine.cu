// Combine: each source pulls what came of its tokens from the ranks that made it, adds up in fp32 and rounds once.
//
//	PARTIALS   one partial row of each rank, in rank order                     bytes N r (1 + D)
//	EXPERTS    every expert row: each rank's in k order from +0, rounded to the payload type as that rank would have
//	           rounded its partial row, then in rank order: the same bits      bytes N r (1 + topK)
//	INVARIANT  every expert row, in k order
//
// Products are rounded before they are added. Rows of a bias come last. A row is read by the one warp that needs it, 16 bytes
// at a time with the loads of eight rows in flight; only rows that a token's list names are read, so that what lies in
// others (NaN) touches nothing. The entry carries where each rank's rows are. Launch: as for dispatch,
// with THREADS or EXPERT_THREADS threads.

enum { PARTIALS, EXPERTS, INVARIANT_SUM };

#ifndef EXPERT_THREADS
#define EXPERT_THREADS 768
#endif

// Target is where sums go, and what is added to them last. Strides are in bytes.
struct Target {
    u64 out, bias[2];
    i64 outStride, biasStride[2];
    u64 numBias;
};

struct CombineArgs {
    Args meet; // part 0: this rank's rows
    u64 terms, rows, numTokens;
    Target to;
    u32 mode, topK, fan, dtype, hidden, pad[3];
};

// Sum adds up rows. Lane i of a warp holds row i of the list: where, weight, rank. V is what a lane loads of a row at a time.
template <class N, int MODE, class V> struct Sum {
    typedef typename N::Raw Raw;
    static const int W = sizeof(V) / sizeof(Raw), DEEP = 8;
    union Unit { V v; Raw x[W]; };
    struct Acc { float sum[W], part[W]; int rank; };

    const Target &d;
    u64 row;
    float weight;
    int rank;
    u32 n, token, hi;

    // load begins to load unit u of rows [s, s + DEEP).
    __device__ __forceinline__ void load(Unit q[DEEP], u32 s, u32 u) const {
#pragma unroll
        for (int i = 0; i < DEEP; i++)
            if (s + i < n) {
                const V *from = (const V *)__shfl_sync(~0u, row, s + i);
                if (u < hi)
                    q[i].v = load_stream(from + u);
            }
    }

    __device__ __forceinline__ void begin(Acc &a) const {
#pragma unroll
        for (int w = 0; w < W; w++)
            a.sum[w] = a.part[w] = 0;
        a.rank = -1;
    }

    // add adds rows [s, s + DEEP).
    __device__ __forceinline__ void add(Acc &a, const Unit q[DEEP], u32 s) const {
#pragma unroll
        for (int i = 0; i < DEEP; i++) {
            if (s + i >= n)
                continue;
            float scale = MODE == PARTIALS ? 0 : __shfl_sync(~0u, weight, s + i);
            if (MODE == EXPERTS) {
                int from = __shfl_sync(~0u, rank, s + i);
                if (from != a.rank && a.rank >= 0)
                    flush(a);
                a.rank = from;
            }
#pragma unroll
            for (int w = 0; w < W; w++) {
                float v = N::up(q[i].x[w]);
                if (MODE == PARTIALS)
                    a.sum[w] = plus(a.sum[w], v);
                else if (MODE == INVARIANT_SUM)
                    a.sum[w] = plus(a.sum[w], times(scale, v));
                else
                    a.part[w] = plus(a.part[w], times(scale, v));
            }
        }
    }

    // flush adds a rank's partial row, rounded as it would have been.
    __device__ __forceinline__ void flush(Acc &a) const {
#pragma unroll
        for (int w = 0; w < W; w++) {
            a.sum[w] = plus(a.sum[w], N::up(N::down(a.part[w])));
            a.part[w] = 0;
        }
    }

    // end adds bias and stores unit u.
    __device__ __forceinline__ void end(Acc &a, u32 u) const {
        if (MODE == EXPERTS && n > 0)
            flush(a);
        if (u >= hi)
            return;
        for (u32 b = 0; b < d.numBias; b++) {
            Unit x;
            x.v = load_stream((const V *)(d.bias[b] + (u64)token * d.biasStride[b]) + u);
#pragma unroll
            for (int w = 0; w < W; w++)
                a.sum[w] = plus(a.sum[w], N::up(x.x[w]));
        }
        Unit out;
#pragma unroll
        for (int w = 0; w < W; w++)
            out.x[w] = N::down(a.sum[w]);
        ((V *)(d.out + (u64)token * d.outStride))[u] = out.v;
    }

    // run sums units [lo, hi), STEPS of them at a time in each lane.
    template <int STEPS> __device__ __forceinline__ void run(u32 lo) const {
        u32 lane = threadIdx.x & 31;
        for (u32 u = lo + lane, base = lo; base < hi; base += 32 * STEPS, u += 32 * STEPS) {
            Acc a[STEPS];
            Unit q[STEPS][DEEP];
#pragma unroll
            for (int k = 0; k < STEPS; k++)
                begin(a[k]);
#pragma unroll 1
            for (u32 s = 0; s < n; s += DEEP) {
#pragma unroll
                for (int k = 0; k < STEPS; k++)
                    load(q[k], s, u + 32 * k);
#pragma unroll
                for (int k = 0; k < STEPS; k++)
                    add(a[k], q[k], s);
            }
#pragma unroll
            for (int k = 0; k < STEPS; k++)
                end(a[k], u + 32 * k);
        }
    }
};

// List is what comes back to one token: one row in each lane, at a place of a rank.
struct List {
    int at, rank;
    float weight;
};

__device__ __forceinline__ List list_of(const CombineArgs &d, u32 token) {
    u32 lane = threadIdx.x & 31;
    List l = {0, -1, 0};
    if (d.mode == PARTIALS) {
        if (lane < d.fan) {
            Sent v = ((const Sent *)d.rows)[(u64)token * d.fan + lane];
            l.at = v.row;
            l.rank = v.rank;
        }
    } else if (lane < d.topK) {
        Term v = ((const Term *)d.terms)[(u64)token * d.topK + lane];
        l.at = v.slot;
        l.rank = v.rank;
        l.weight = v.weight;
    }
    return l;
}

// Share is how a rank's warps share its tokens: parts of a row where tokens are few.
struct Share {
    u32 tokens, parts, all, id, units;
    bool vector;
};

// SHARES is how many parts a warp should have: more even out, each costs a look at a list.
#ifndef SHARES
#define SHARES 4u
#endif

__device__ Share share_of(const CombineArgs &d, u32 tokens, bool vector) {
    u32 size = d.dtype == F32 ? 4 : 2, warps = blockDim.x / 32;
    Share s = {tokens, 1, gridDim.x * warps, threadIdx.x / 32 * gridDim.x + blockIdx.x, vector ? d.hidden * size / 16 : d.hidden, vector};
    if (tokens > 0)
        s.parts = max(1u, min(SHARES * s.all / tokens, (s.units + 31) / 32));
    return s;
}

// combine_all sums this warp's share. l is the list of the first token.
template <class N, int MODE> __device__ __noinline__ void combine_all(const CombineArgs &d, const Entry *entries, Share s, List l) {
    for (u32 i = s.id, end = s.tokens * s.parts; i < end; i += s.all) {
        u32 token = i / s.parts, part = i % s.parts;
        List next = l; // on its way while this one is summed
        if (i + s.all < end)
            next = list_of(d, (i + s.all) / s.parts);
        u32 ends = __ballot_sync(~0u, l.rank < 0), n = ends ? __ffs(ends) - 1 : 32;
        u64 from = 0;
        if ((threadIdx.x & 31) < n)
            from = entries[l.rank].parts[0].src + (i64)l.at * entries[l.rank].parts[0].srcStride;
        u32 lo = s.units * part / s.parts, hi = s.units * (part + 1) / s.parts;
        if (s.vector)
            Sum<N, MODE, uint4>{d.to, from, l.weight, l.rank, n, token, hi}.template run<MODE == PARTIALS ? 2 : 1>(lo);
        else
            Sum<N, MODE, typename N::Raw>{d.to, from, l.weight, l.rank, n, token, hi}.template run<1>(lo);
        l = next;
    }
}

// combine_as sums with the given mode; EXPERT_ROWS are both modes that read expert rows.
template <class N, bool EXPERT_ROWS> __device__ void combine_as(const CombineArgs &d, const Entry *entries, Share s, List l) {
    if (!EXPERT_ROWS)
        combine_all<N, PARTIALS>(d, entries, s, l);
    else if (d.mode == EXPERTS)
        combine_all<N, EXPERTS>(d, entries, s, l);
    else
        combine_all<N, INVARIANT_SUM>(d, entries, s, l);
}

template <bool EXPERT_ROWS> __device__ __forceinline__ void combine(const CombineArgs &d) {
    __shared__ Shared sh;
    __shared__ u32 odd;
    const Args &a = d.meet;
    Ctl *c = a.ctl;
    follow();
    u32 t = threadIdx.x, size = d.dtype == F32 ? 4 : 2;
    // Alike on all ranks or not: only this rank's own accesses matter.
    u64 bits = d.to.out | (u64)d.to.outStride | (u64)d.hidden * size;
    for (u32 i = 0; i < d.to.numBias; i++)
        bits |= d.to.bias[i] | (u64)d.to.biasStride[i];
    u32 tokens = *(const u32 *)d.numTokens;
    Share s = share_of(d, tokens, (bits & 15) == 0);
    List first = {0, -1, 0};
    if (s.id < tokens * s.parts) // on its way while the ranks meet
        first = list_of(d, s.id / s.parts);
    if (t == 0)
        odd = 0;
    int state = begin(a, sh, next_epoch(a));
    if (state == LEAVE)
        return;
    if (state == GO) {
        if (t < c->size)
            atomicOr(&odd, ((u32)(sh.entries[t].parts[0].src | sh.entries[t].parts[0].srcStride) & 15) | sh.entries[t].parts[0].dstRows << 4);
        __syncthreads();
        if ((odd & 15) != 0 && s.vector) {
            s = share_of(d, tokens, false);
            if (s.id < tokens * s.parts)
                first = list_of(d, s.id / s.parts);
        }
        switch (d.dtype) {
        case F32: combine_as<NumF32, EXPERT_ROWS>(d, sh.entries, s, first); break;
        case BF16: combine_as<NumBF16, EXPERT_ROWS>(d, sh.entries, s, first); break;
        default: combine_as<NumF16, EXPERT_ROWS>(d, sh.entries, s, first);
        }
    }
    // What lies in an exchanger's banks is not written again before the next dispatch, which is a meeting too. Memory of the
    // caller's (dstRows 1) is: then all ranks meet.
    finish(a, sh, state == GO && odd < 16);
}

// weft_combine: see above; partial rows.
extern "C" __global__ void __launch_bounds__(THREADS, 1) weft_combine(const __grid_constant__ CombineArgs d) { combine<false>(d); }

// weft_combine_experts: see above; expert rows. More warps hide what they compute between loads.
extern "C" __global__ void __launch_bounds__(EXPERT_THREADS, 1) weft_combine_experts(const __grid_constant__ CombineArgs d) { combine<true>(d); }

// PartialArgs are the parameters of weft_partials. y [slots, hidden], or [rows, hidden] to copy.
struct PartialArgs {
    u64 dst, y, slot, weight, numRows;
    i64 dstStride, yStride; // bytes
    u32 topK, hidden, dtype, wide, copy, pad; // wide: dst is fp32, of values rounded to dtype
};

// sum_rows makes partial rows of the type of y.
template <class N> __device__ void sum_rows(const PartialArgs &d) {
    typedef typename N::Raw Raw;
    u32 lane = threadIdx.x & 31, warps = gridDim.x * (blockDim.x / 32), rows = *(const u32 *)d.numRows;
    bool vector = ((d.dst | (u64)d.dstStride | d.y | (u64)d.yStride | (u64)d.hidden * sizeof(Raw)) & 15) == 0;
    u32 units = vector ? d.hidden * sizeof(Raw) / 16 : d.hidden;
    const Target to = {d.dst, {}, d.dstStride, {}, 0};
    u32 parts = rows == 0 ? 1 : max(1u, min(warps / rows, (units + 31) / 32)); // of a row, where rows are few
    for (u32 i = threadIdx.x / 32 * gridDim.x + blockIdx.x; i < rows * parts; i += warps) {
        u32 row = i / parts, part = i % parts, lo = units * part / parts, hi = units * (part + 1) / parts;
        int slot = lane < d.topK ? ((const int *)d.slot)[(u64)row * d.topK + lane] : -1;
        float weight = slot >= 0 ? ((const float *)d.weight)[slot] : 0;
        u32 with = __ballot_sync(~0u, slot >= 0), at = 0;
#pragma unroll
        for (u32 b = 16; b > 0; b /= 2) // the place of the lane'th slot that is there
            if (__popc(with & ((1u << (at + b)) - 1)) <= lane)
                at += b;
        slot = __shfl_sync(~0u, slot, at);
        weight = __shfl_sync(~0u, weight, at);
        u64 from = d.y + (i64)slot * d.yStride;
        if (vector)
            Sum<N, INVARIANT_SUM, uint4>{to, from, weight, 0, (u32)__popc(with), row, hi}.template run<1>(lo);
        else
            Sum<N, INVARIANT_SUM, Raw>{to, from, weight, 0, (u32)__popc(with), row, hi}.template run<1>(lo);
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
extern "C" __global__ void __launch_bounds__(EXPERT_THREADS, 1) weft_partials(const __grid_constant__ PartialArgs d) {
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
