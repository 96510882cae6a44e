// Collectives that reduce: all_reduce, reduce_scatter(v), reduce. Every rank owns an equal slice of the elements, reads it from
// all ranks in rank order, rounds once and writes it where it is wanted: to all ranks (all_reduce), to the rank whose rows
// they are, or to the root. An element is read and written by one thread of one rank, so results may be made in place, and
// skewed counts cost no more per byte than equal ones.
// Bytes on P ranks, S each: all_reduce P S read and P S written, reduce_scatter P S read and S written, over all ranks.

// Share is what a rank reduces of a part: sources of all ranks and destinations, each with its own row stride.
struct Share {
    const u8 *src[MAX_RANKS];
    i64 srcStride[MAX_RANKS];
    u8 *dst[MAX_RANKS];
    i64 dstStride[MAX_RANKS];
    u32 numSrc, numDst, vector, pad;
    u64 rows, bytes;    // of a row
    u64 rowBytes;       // before rows without gaps became one row
};

// Range is units [lo, hi), counted row by row, into destinations [first, end).
struct Range {
    u64 lo, hi;
    u32 first, end;
};

// vector reduces units of 16 bytes. SUMS: op is SUM or AVG.
template <class N, bool SUMS> __device__ __forceinline__ void vector(const Share &s, Team team, const Range &r, u32 op) {
    typedef typename N::Raw Raw;
    typedef typename N::Acc Acc;
    const int W = 16 / sizeof(Raw);
    u64 per = s.bytes / 16;
    for (u64 u = r.lo + team.id; u < r.hi; u += team.size) {
        u64 row = 0, at = u * 16;
        if (s.rows > 1) {
            row = u / per;
            at = (u - row * per) * 16;
        }
        Acc acc[W];
#pragma unroll
        for (int k = 0; k < W; k++)
            acc[k] = 0;
        // Loads of DEEP ranks are in flight at once: fewer for the narrow types, which need more registers to add up.
        const u32 DEEP = sizeof(Raw) == 1 ? 2 : SUMS ? 8 : 4;
        for (u32 i = 0; i < s.numSrc; i += DEEP) {
            union { uint4 q; Raw x[W]; } v[DEEP];
#pragma unroll
            for (u32 k = 0; k < DEEP; k++)
                if (i + k < s.numSrc)
                    v[k].q = load_stream((const uint4 *)(s.src[i + k] + row * s.srcStride[i + k] + at));
#pragma unroll
            for (u32 k = 0; k < DEEP; k++)
                if (i + k < s.numSrc)
#pragma unroll
                    for (int w = 0; w < W; w++) {
                        Acc x = N::up(v[k].x[w]);
                        acc[w] = SUMS ? plus(acc[w], x) : k == 0 && i == 0 ? x : join(acc[w], x, op);
                    }
        }
        union { uint4 q; Raw x[W]; } out;
#pragma unroll
        for (int w = 0; w < W; w++)
            out.x[w] = N::down(SUMS && op == AVG ? over(acc[w], s.numSrc) : acc[w]);
        DELAY();
        for (u32 i = r.first; i < r.end; i++)
            *(uint4 *)(s.dst[i] + row * s.dstStride[i] + at) = out.q;
    }
}

// single reduces elements one at a time: any alignment, any reduction.
template <class N> __device__ __forceinline__ void single(const Share &s, Team team, const Range &r, u32 op) {
    typedef typename N::Raw Raw;
    typedef typename N::Acc Acc;
    u64 per = s.bytes / sizeof(Raw);
    for (u64 u = r.lo + team.id; u < r.hi; u += team.size) {
        u64 row = 0, at = u * sizeof(Raw);
        if (s.rows > 1) {
            row = u / per;
            at = (u - row * per) * sizeof(Raw);
        }
        Acc acc = 0;
        for (u32 i = 0; i < s.numSrc; i += 4) {
            Raw v[4];
#pragma unroll
            for (u32 k = 0; k < 4; k++)
                if (i + k < s.numSrc)
                    v[k] = load_stream((const Raw *)(s.src[i + k] + row * s.srcStride[i + k] + at));
#pragma unroll
            for (u32 k = 0; k < 4; k++)
                if (i + k < s.numSrc) {
                    Acc x = N::up(v[k]);
                    acc = i + k == 0 && op != SUM && op != AVG ? x : join(acc, x, op);
                }
        }
        if (op == AVG)
            acc = over(acc, s.numSrc);
        Raw out = N::down(acc);
        DELAY();
        for (u32 i = r.first; i < r.end; i++)
            *(Raw *)(s.dst[i] + row * s.dstStride[i] + at) = out;
    }
}

// reduce_type is all that depends on the type, out of line and without calls: what such functions save on the stack adds up, and
// a kernel with more stack than a context has from the start makes the driver wait for all running kernels.
template <class N, bool COMMON> __device__ __noinline__ void reduce_type(const Share &s, Team team, Range r, u32 op, bool wide) {
    if (!wide)
        single<N>(s, team, r, op);
    else if (COMMON || op == SUM || op == AVG)
        vector<N, true>(s, team, r, op);
    else
        vector<N, false>(s, team, r, op);
}

// reduce_range reduces a range of 16-byte units (wide) or of elements. COMMON: sums and averages of f32, bf16 and f16 alone.
template <bool COMMON>
__device__ __forceinline__ void reduce_range(const Share &s, Team team, const Range &r, u32 dtype, u32 op, bool wide) {
    switch (dtype) {
    case F32: reduce_type<NumF32, COMMON>(s, team, r, op, wide); return;
    case BF16: reduce_type<NumBF16, COMMON>(s, team, r, op, wide); return;
    case F16: reduce_type<NumF16, COMMON>(s, team, r, op, wide); return;
    }
    if constexpr (!COMMON)
        switch (dtype) {
        case E4M3: reduce_type<NumE4M3, false>(s, team, r, op, wide); break;
        case E5M2: reduce_type<NumE5M2, false>(s, team, r, op, wide); break;
        case I8: reduce_type<Int<signed char, int>, false>(s, team, r, op, wide); break;
        case U8: reduce_type<Int<u8, int>, false>(s, team, r, op, wide); break;
        case I32: reduce_type<Int<int, int>, false>(s, team, r, op, wide); break;
        case I64: reduce_type<Int<i64, i64>, false>(s, team, r, op, wide); break;
        }
}

// ANY_CHUNK is the bytes of each rank that a block of weft_reduce_any takes at a time: no rank of the call has bulk copies.
#define ANY_CHUNK (16u << 10)

// flow_reduce reduces chunks with all threads of the block: any alignment. w and p are in shared memory.
template <bool COMMON> __device__ void flow_reduce(const Args &a, Shared &sh, Share &s, Walk &w, Piece &p, u64 ticket) {
    const u32 size = a.ctl->size, rank = a.ctl->rank, t = threadIdx.x;
    if (t == 0)
        walk_start(a, sh, w, COMMON ? reduce_chunk(size) : ANY_CHUNK, ticket);
    const Team team = {t, blockDim.x};
    while (take(a, sh, w, p)) {
        bool even = (p.bytes & 15) == 0;
        if (t < size) {
            s.src[t] = source(sh, p, t);
            even = even && ((u64)s.src[t] & 15) == 0;
        }
        if (t < p.numDst) {
            s.dst[t] = target(sh, p, destination(p, rank, size, t));
            even = even && ((u64)s.dst[t] & 15) == 0;
        }
        if (t == 0) {
            s.numSrc = size;
            s.rows = 1;
            s.bytes = p.bytes;
        }
        even = __syncthreads_and(even);
        const Part &own = a.entry.parts[p.part];
        const Range r = {0, p.bytes / (even ? 16 : type_bytes(own.dtype)), 0, p.numDst};
        reduce_range<COMMON>(s, team, r, own.dtype, a.reduce, even);
    }
}

// reduce_share reduces one rank's slice of a part: as 16-byte units as far as all buffers allow, what is left over element by
// element. With scatter, destination j takes rows [rows[j], rows[j + 1]), counted from the source's first.
template <bool COMMON>
__device__ void reduce_share(const Share &s, u32 dtype, u32 op, const Ctl *c, const int *rows, bool scatter) {
    const u32 small = __ffs((u32)type_bytes(dtype)) - 1, shift = s.vector ? 4 : small; // units are 1 << shift bytes
    u64 elements = s.rows * s.bytes >> small, lo, hi;
    u64 units = s.rows * (s.bytes >> shift), done = units << shift >> small;
    u32 last = 0, num = scatter ? c->size : 1; // last: the destination of the last element
    slice(units, c->rank, c->size, lo, hi);
    for (u32 j = 0; j <= num; j++) { // the one after the last is what is left over
        Range r = {lo, hi, 0, s.numDst};
        bool rest = j == num;
        if (rest) {
            if (done >= elements || c->rank != c->size - 1) // some are left only when all is one row
                break;
            r.lo = done;
            r.hi = elements;
        } else if (scatter) {
            r.lo = max(lo, rows[j] * s.rowBytes >> shift);
            r.hi = min(hi, rows[j + 1] * s.rowBytes >> shift);
            if (rows[j] < rows[j + 1])
                last = j;
        }
        if (scatter) {
            r.first = rest ? last : j;
            r.end = r.first + 1;
        }
        if (r.lo < r.hi)
            reduce_range<COMMON>(s, everyone(), r, dtype, op, s.vector && !rest);
    }
}

// settle decides, alike on all ranks that share it, whether 16-byte units can be used, and makes rows without gaps one row.
__device__ void settle(Share &s, const int *rows, u32 size, bool scatter) {
    bool dense = true;
    u64 align = 0, strides = 0;
    for (u32 i = 0; i < s.numSrc; i++) {
        dense = dense && s.srcStride[i] == (i64)s.bytes;
        align |= (u64)s.src[i];
        strides |= (u64)s.srcStride[i];
    }
    for (u32 i = 0; i < s.numDst; i++) {
        dense = dense && s.dstStride[i] == (i64)s.bytes;
        align |= (u64)s.dst[i];
        strides |= (u64)s.dstStride[i];
    }
    if (dense) {
        s.bytes *= s.rows;
        s.rows = s.bytes > 0 ? 1 : 0;
    }
    // Units of a scattering form must not cross from one destination's rows to the next one's.
    for (u32 j = 0; scatter && j <= size; j++)
        align |= rows[j] * s.rowBytes;
    s.vector = (align & 15) == 0 && (s.rows <= 1 || ((strides | s.bytes) & 15) == 0);
}

// share fills s for one part.
__device__ void share(const Args &a, Shared &sh, Share &s, u32 part) {
    Ctl *c = a.ctl;
    const Entry *entries = sh.entries;
    bool scatter = a.kind == REDUCE_SCATTER || a.kind == REDUCE_SCATTERV;
    u32 t = threadIdx.x, size = c->size;
    __syncthreads();
    if (t < size) {
        const Part &p = entries[t].parts[part];
        s.src[t] = (const u8 *)p.src;
        s.srcStride[t] = p.srcStride;
        if (a.kind == ALL_REDUCE) {
            // Each rank begins with another peer, so that they do not all write to one at a time.
            u32 to = (t + size - c->rank) % size;
            s.dst[to] = (u8 *)p.dst;
            s.dstStride[to] = p.dstStride;
        } else if (scatter) { // as if it held the rows before its own
            s.dst[t] = (u8 *)p.dst - sh.rows[t] * p.dstStride;
            s.dstStride[t] = p.dstStride;
        }
    }
    __syncthreads();
    if (t == 0) {
        const Part &own = a.entry.parts[part];
        s.numSrc = size;
        s.bytes = row_bytes(own);
        s.rowBytes = s.bytes;
        s.rows = scatter ? sh.rows[size] : own.srcRows;
        s.numDst = a.kind == REDUCE ? 1 : size;
        if (a.kind == REDUCE) {
            s.dst[0] = (u8 *)entries[a.peer].parts[part].dst;
            s.dstStride[0] = entries[a.peer].parts[part].dstStride;
        }
        settle(s, sh.rows, size, scatter);
    }
    __syncthreads();
}

// flow reduces a large call without gaps in chunks, or says that it cannot.
template <bool COMMON> __device__ __forceinline__ bool flow(const Args &a, Shared &sh, Share &s, Pipe &pipe, u64 ticket) {
    u32 how = flows(a, sh);
    if (how == NO_FLOW)
        return false;
#if __CUDA_ARCH__ >= 900
    if constexpr (COMMON) {
        const u32 dtype = a.entry.parts[0].dtype;
        bool one = true; // type, for which the block's loop is made
        for (u32 p = 1; p < a.entry.numParts; p++)
            one = one && a.entry.parts[p].dtype == dtype;
        if (how == FLOWS_EVEN && one && has_bulk()) {
            switch (dtype) {
            case F32: bulk_sum<NumF32>(a, sh, pipe, ticket); break;
            case BF16: bulk_sum<NumBF16>(a, sh, pipe, ticket); break;
            default: bulk_sum<NumF16>(a, sh, pipe, ticket);
            }
            return true;
        }
    }
#endif
    flow_reduce<COMMON>(a, sh, s, pipe.walk, pipe.pieces[0], ticket);
    return true;
}

template <bool COMMON> __device__ void reduce(const Args &a, Shared &sh, Share &s, Pipe &pipe) {
    follow();
    int state = begin(a, sh, next_epoch(a));
    if (state == LEAVE)
        return;
    bool scatter = a.kind == REDUCE_SCATTER || a.kind == REDUCE_SCATTERV;
    u64 ticket = first_ticket(a, sh, state == GO && has_bulk());
    if (state == GO && (!scatter || gather_plan(a, sh)) && !flow<COMMON>(a, sh, s, pipe, ticket)) {
        for (u32 p = 0; p < a.entry.numParts; p++) {
            share(a, sh, s, p);
            reduce_share<COMMON>(s, a.entry.parts[p].dtype, a.reduce, a.ctl, sh.rows, scatter);
        }
    }
    finish(a, sh, state == FAULT);
}

// weft_reduce: sums and averages of all_reduce, reduce_scatter, reduce_scatterv, reduce, where all parts are f32, bf16 or f16.
extern "C" __global__ void __launch_bounds__(THREADS, 1) weft_reduce(const __grid_constant__ Args a) {
    __shared__ Shared sh;
    __shared__ Share s;
    __shared__ Pipe pipe;
    reduce<true>(a, sh, s, pipe);
}

// weft_reduce_any: the same for all types and reductions. Half the threads, so that each has the registers that 8-bit types need.
extern "C" __global__ void __launch_bounds__(THREADS / 2, 1) weft_reduce_any(const __grid_constant__ Args a) {
    __shared__ Shared sh;
    __shared__ Share s;
    __shared__ Pipe pipe;
    reduce<false>(a, sh, s, pipe);
}
