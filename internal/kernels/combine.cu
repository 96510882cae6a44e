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

    // For sums in order and without bias. Loads have no conditions, since one that may not happen keeps its register busy: behind the
    // end they load the last unit or row again.

    __device__ __forceinline__ void fetch(Unit &q, u64 from, u32 u) const { q.v = load_stream((const V *)from + min(u, hi - 1)); }
    __device__ __forceinline__ void store(const float sum[W], u32 u) const {
        Unit out;
#pragma unroll
        for (int w = 0; w < W; w++)
            out.x[w] = N::down(sum[w]);
        if (u < hi)
            ((V *)(d.out + (u64)token * d.outStride))[u] = out.v;
    }

    // exactly sums units [lo, hi) of ROWS rows, which n is: as many steps at a time as make DEEP loads or nearly so.
    template <int ROWS> __device__ __forceinline__ void exactly(u32 lo) const {
        const int STEPS = DEEP / ROWS;
        u64 from[ROWS];
        float scale[ROWS];
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            from[i] = __shfl_sync(~0u, row, i);
            scale[i] = __shfl_sync(~0u, weight, i);
        }
        for (u32 u = lo + (threadIdx.x & 31); u < hi; u += 32 * STEPS) {
            Unit q[STEPS][ROWS];
#pragma unroll
            for (int k = 0; k < STEPS; k++)
#pragma unroll
                for (int i = 0; i < ROWS; i++)
                    fetch(q[k][i], from[i], u + 32 * k);
#pragma unroll
            for (int k = 0; k < STEPS; k++) {
                float sum[W] = {};
#pragma unroll
                for (int i = 0; i < ROWS; i++)
#pragma unroll
                    for (int w = 0; w < W; w++)
                        sum[w] = plus(sum[w], times(scale[i], N::up(q[k][i].x[w])));
                store(sum, u + 32 * k);
            }
        }
    }

    // any sums units [lo, hi) of any number of rows.
    __device__ __forceinline__ void any(u32 lo) const {
        for (u32 u = lo + (threadIdx.x & 31), base = lo; base < hi; base += 32, u += 32) {
            float sum[W] = {};
#pragma unroll 1
            for (u32 s = 0; s < n; s += DEEP) {
                Unit q[DEEP];
#pragma unroll
                for (int i = 0; i < DEEP; i++)
                    fetch(q[i], __shfl_sync(~0u, row, min(s + i, n - 1)), u);
#pragma unroll
                for (int i = 0; i < DEEP; i++) {
                    float scale = __shfl_sync(~0u, weight, min(s + i, n - 1));
#pragma unroll
                    for (int w = 0; w < W; w++)
                        if (s + i < n)
                            sum[w] = plus(sum[w], times(scale, N::up(q[i].x[w])));
                }
            }
            store(sum, u);
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
    finish(a, sh, state == FAULT || odd < 16);
}

// weft_combine: see above; partial rows.
extern "C" __global__ void __launch_bounds__(THREADS, 1) weft_combine(const __grid_constant__ CombineArgs d) { combine<false>(d); }

// weft_combine_experts: see above; expert rows. More warps hide what they compute between loads.
extern "C" __global__ void __launch_bounds__(EXPERT_THREADS, 1) weft_combine_experts(const __grid_constant__ CombineArgs d) { combine<true>(d); }
