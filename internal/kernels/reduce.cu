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

// vector reduces 16-byte units [lo, hi), counted row by row, into destinations [first, end). OP is SUM, with which AVG goes,
// PROD, MIN or MAX.
template <class N, u32 OP> __device__ __noinline__ void vector(const Share &s, u64 lo, u64 hi, u32 first, u32 end, bool avg) {
    typedef typename N::Raw Raw;
    typedef typename N::Acc Acc;
    const int W = 16 / sizeof(Raw);
    u64 per = s.bytes / 16;
    Team team = everyone();
    for (u64 u = lo + team.id; u < hi; u += team.size) {
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
        const u32 DEEP = sizeof(Raw) == 1 ? 2 : OP == SUM ? 8 : 4;
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
                        acc[w] = OP != SUM && k == 0 && i == 0 ? x : join(acc[w], x, OP);
                    }
        }
        union { uint4 q; Raw x[W]; } out;
#pragma unroll
        for (int w = 0; w < W; w++)
            out.x[w] = N::down(OP == SUM && avg ? over(acc[w], s.numSrc) : acc[w]);
        DELAY();
        for (u32 i = first; i < end; i++)
            *(uint4 *)(s.dst[i] + row * s.dstStride[i] + at) = out.q;
    }
}

// single reduces elements [lo, hi) one at a time: any alignment, any reduction.
template <class N> __device__ __noinline__ void single(const Share &s, u64 lo, u64 hi, u32 first, u32 end, u32 op) {
    typedef typename N::Raw Raw;
    typedef typename N::Acc Acc;
    u64 per = s.bytes / sizeof(Raw);
    Team team = everyone();
    for (u64 u = lo + team.id; u < hi; u += team.size) {
        u64 row = u / per, at = (u - row * per) * sizeof(Raw);
        Acc acc = 0;
#pragma unroll 1
        for (u32 i = 0; i < s.numSrc; i++) {
            Acc x = N::up(load_stream((const Raw *)(s.src[i] + row * s.srcStride[i] + at)));
            acc = i == 0 && op != SUM && op != AVG ? x : join(acc, x, op);
        }
        if (op == AVG)
            acc = over(acc, s.numSrc);
        Raw out = N::down(acc);
        DELAY();
        for (u32 i = first; i < end; i++)
            *(Raw *)(s.dst[i] + row * s.dstStride[i] + at) = out;
    }
}

// reduce_share reduces one rank's slice: as 16-byte units as far as all buffers allow, what is left over element by element.
// With scatter, destination j takes rows [rows[j], rows[j + 1]), counted from the source's first.
// SUMS: op is SUM or AVG.
template <class N, bool SUMS> __device__ void reduce_share(const Share &s, u32 op, const Ctl *c, const int *rows, bool scatter) {
    const u64 size = sizeof(typename N::Raw);
    u64 elements = s.rows * s.bytes / size, lo, hi;
    u64 unit = s.vector ? 16 : size, units = s.rows * (s.bytes / unit), done = units * unit / size;
    u32 last = 0; // the destination of the last element
    slice(units, c->rank, c->size, lo, hi);
    for (u32 j = 0; j < (scatter ? c->size : 1); j++) {
        u64 from = lo, to = hi;
        u32 first = 0, end = s.numDst;
        if (scatter) {
            from = max(lo, rows[j] * s.rowBytes / unit);
            to = min(hi, rows[j + 1] * s.rowBytes / unit);
            first = j;
            end = j + 1;
            if (rows[j] < rows[j + 1])
                last = j;
        }
        if (from >= to)
            continue;
        if (!s.vector)
            single<N>(s, from, to, first, end, op);
        else if (SUMS || op == SUM || op == AVG)
            vector<N, SUM>(s, from, to, first, end, op == AVG);
        else if (op == PROD)
            vector<N, PROD>(s, from, to, first, end, false);
        else if (op == MIN)
            vector<N, MIN>(s, from, to, first, end, false);
        else
            vector<N, MAX>(s, from, to, first, end, false);
    }
    if (done < elements && c->rank == c->size - 1) // only when all is one row
        single<N>(s, done, elements, scatter ? last : 0, scatter ? last + 1 : s.numDst, op);
}

// settle decides, alike on all ranks that share it, whether 16-byte units can be used, and makes rows without gaps one row.
__device__ void settle(Share &s, bool scatter) {
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
    // Slices of a scattering form must not cross from one destination's rows to the next one's.
    s.vector = (align & 15) == 0 && (!scatter || (s.rowBytes & 15) == 0) && (s.rows <= 1 || ((strides | s.bytes) & 15) == 0);
}

// reduce_part reduces one part. COMMON: sums and averages of f32, bf16 and f16 alone, which then have the registers to
// themselves.
template <bool COMMON>
__device__ void reduce_part(const Share &s, u32 dtype, u32 op, const Ctl *c, const int *rows, bool scatter) {
    switch (dtype) {
    case F32: reduce_share<NumF32, COMMON>(s, op, c, rows, scatter); return;
    case BF16: reduce_share<NumBF16, COMMON>(s, op, c, rows, scatter); return;
    case F16: reduce_share<NumF16, COMMON>(s, op, c, rows, scatter); return;
    }
    if (COMMON)
        return;
    switch (dtype) {
    case E4M3: reduce_share<NumE4M3, false>(s, op, c, rows, scatter); break;
    case E5M2: reduce_share<NumE5M2, false>(s, op, c, rows, scatter); break;
    case I8: reduce_share<Int<signed char, int>, false>(s, op, c, rows, scatter); break;
    case U8: reduce_share<Int<u8, int>, false>(s, op, c, rows, scatter); break;
    case I32: reduce_share<Int<int, int>, false>(s, op, c, rows, scatter); break;
    case I64: reduce_share<Int<i64, i64>, false>(s, op, c, rows, scatter); break;
    }
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
        settle(s, scatter);
    }
    __syncthreads();
}

template <bool COMMON> __device__ void reduce(const Args &a, Shared &sh, Share &s) {
    int state = begin(a, sh, next_epoch(a));
    if (state == LEAVE)
        return;
    bool scatter = a.kind == REDUCE_SCATTER || a.kind == REDUCE_SCATTERV;
    if (state == GO && (!scatter || gather_plan(a, sh))) {
        for (u32 p = 0; p < a.entry.numParts; p++) {
            share(a, sh, s, p);
            u32 dtype = a.entry.parts[p].dtype;
            reduce_part<COMMON>(s, dtype, a.reduce, a.ctl, sh.rows, scatter);
        }
    }
    finish(a, sh, false);
}

// weft_reduce: sums and averages of all_reduce, reduce_scatter, reduce_scatterv, reduce, where all parts are f32, bf16 or f16.
extern "C" __global__ void __launch_bounds__(THREADS, 1) weft_reduce(const __grid_constant__ Args a) {
    __shared__ Shared sh;
    __shared__ Share s;
    reduce<true>(a, sh, s);
}

// weft_reduce_any: the same for all types and reductions.
extern "C" __global__ void __launch_bounds__(THREADS, 1) weft_reduce_any(const __grid_constant__ Args a) {
    __shared__ Shared sh;
    __shared__ Share s;
    reduce<false>(a, sh, s);
}
