// all_gather, all_gatherv, broadcast: the result is cut into equal slices, one for each rank. It reads its slice once, wherever
// it lies, and writes it to all ranks. With equal counts that is its own source; with skewed counts the other ranks help, so
// that skew costs nothing per byte. Bytes of a result of S bytes: S read, P S written over all ranks.

// type_bytes is the size of an element: a digit for each type, in a register.
__device__ __forceinline__ u64 type_bytes(u32 dtype) { return 0x8411112240ull >> 4 * dtype & 15; }

__device__ __forceinline__ u64 row_bytes(const Part &p) {
    return (u64)p.cols * type_bytes(p.dtype);
}

// rows_of are the rows of rank i that a gathering or scattering form moves.
__device__ __forceinline__ int rows_of(const Args &a, const Entry *entries, u32 i) {
    switch (a.kind) {
    case ALL_GATHER: return entries[i].parts[0].srcRows;
    case REDUCE_SCATTER: return entries[i].parts[0].dstRows;
    default: return entries[i].hostCounts & 1 ? entries[0].send[i] : entries[i].send[0];
    }
}

// blame keeps the first (smallest) key of a fault in the counts.
__device__ __forceinline__ void blame(Shared &sh, u32 key) { atomicMin(&sh.bad, key); }

// report_once writes the record of a fault that all blocks found alike.
__device__ __forceinline__ void report_once(const Args &a, Record r) {
    if (blockIdx.x == 0 && threadIdx.x == 0)
        report(a.ctl, a, r);
}

// gather_plan fills sh.rows with the prefix sums of everyone's rows and checks counts that were on the device. It is the same
// on all ranks. It returns whether the counts fit.
__device__ bool gather_plan(const Args &a, Shared &sh) {
    Ctl *c = a.ctl;
    const Entry *entries = sh.entries;
    u32 t = threadIdx.x, size = c->size;
    bool onDevice = a.ragged && !(entries[0].hostCounts & 1);
    __syncthreads(); // begin has read sh.bad
    if (t == 0)
        sh.bad = ~0u;
    __syncthreads();
    if (onDevice && t < size && (entries[t].send[0] < 0 || (u32)entries[t].send[0] > entries[0].sendLimit))
        blame(sh, t);
    __syncthreads();
    u32 bad = sh.bad;
    if (bad != ~0u) {
        report_once(a, record(OWN_RANGE, bad, bad, entries[bad].send[0], entries[0].sendLimit));
        return false;
    }
    if (t == 0) {
        int sum = 0;
        for (u32 i = 0; i < size; i++) {
            sh.rows[i] = sum;
            sum += rows_of(a, entries, i);
        }
        sh.rows[size] = sum;
    }
    __syncthreads();
    if (!onDevice)
        return true;
    u32 sum = sh.rows[size];
    if (t < size) {
        u32 own = entries[t].send[0];
        for (u32 p = 0; p < entries[t].numParts; p++) {
            const Part &part = entries[t].parts[p];
            if (a.kind == ALL_GATHERV ? part.srcRows < own : part.srcRows < sum || part.dstRows < own)
                blame(sh, t * MAX_PARTS + p);
        }
    }
    __syncthreads();
    bad = sh.bad;
    if (bad != ~0u) {
        u32 i = bad / MAX_PARTS, own = entries[i].send[0];
        const Part &part = entries[i].parts[bad % MAX_PARTS];
        if (a.kind == ALL_GATHERV)
            report_once(a, record(SRC_OWN, i, i, own, part.srcRows));
        else if (part.srcRows < sum)
            report_once(a, record(SRC_SUM, i, i, sum, part.srcRows));
        else
            report_once(a, record(DST_OWN, i, i, own, part.dstRows));
        return false;
    }
    if (blockIdx.x == 0 && t < size)
        ((int *)a.all)[t] = sh.rows[t + 1] - sh.rows[t];
    return true;
}

// Move is where a slice goes: from one rank's memory to several.
struct Move {
    u8 *dst[MAX_RANKS];
    i64 dstStride[MAX_RANKS];
    u32 numDst, unit, shift, dense, align; // unit is 1 << shift
    u64 bytes; // of a row
};

// copy_range copies units [lo, hi) of V, counted row by row, to all destinations; per are the units of a row. Memory that
// would be copied onto itself is left alone.
template <class V> __device__ void copy_range(const Move &m, const u8 *src, i64 srcStride, u64 per, u64 lo, u64 hi) {
    const int UNROLL = 4;
    const u64 step = blockDim.x; // a block's units lie together
    for (u64 u = lo + (u64)blockIdx.x * UNROLL * step + threadIdx.x; u < hi; u += gridDim.x * UNROLL * step) {
        V v[UNROLL];
        i64 row[UNROLL], at[UNROLL];
#pragma unroll
        for (int k = 0; k < UNROLL; k++) {
            u64 x = u + k * step;
            row[k] = m.dense ? 0 : x / per;
            at[k] = (x - row[k] * per) * sizeof(V);
            if (x < hi)
                v[k] = load_stream((const V *)(src + row[k] * srcStride + at[k]));
        }
        for (u32 d = 0; d < m.numDst; d++) {
            u8 *to = m.dst[d];
            i64 stride = m.dstStride[d];
            if (to == src && (m.dense || stride == srcStride))
                continue;
            DELAY();
#pragma unroll
            for (int k = 0; k < UNROLL; k++)
                if (u + k * step < hi)
                    *(V *)(to + row[k] * stride + at[k]) = v[k];
        }
    }
}

__device__ void move_range(const Move &m, const u8 *src, i64 srcStride, u64 lo, u64 hi) {
    u64 per = m.bytes >> m.shift;
    switch (m.unit) {
    case 16: copy_range<uint4>(m, src, srcStride, per, lo, hi); break;
    case 8: copy_range<uint2>(m, src, srcStride, per, lo, hi); break;
    case 4: copy_range<u32>(m, src, srcStride, per, lo, hi); break;
    case 2: copy_range<u16>(m, src, srcStride, per, lo, hi); break;
    default: copy_range<u8>(m, src, srcStride, per, lo, hi);
    }
}

// prepare makes everyone's destinations of a part m's, and chooses the unit and whether rows have gaps: alike on all ranks,
// because they share the slices.
__device__ void prepare(const Args &a, Shared &sh, Move &m, u32 part) {
    Ctl *c = a.ctl;
    const Entry *entries = sh.entries;
    u32 t = threadIdx.x, size = c->size;
    u64 bytes = row_bytes(a.entry.parts[part]);
    __syncthreads();
    if (t == 0) {
        m.numDst = size;
        m.bytes = bytes;
        m.align = 0;
        m.dense = 1;
    }
    __syncthreads();
    if (t < size) {
        const Part &p = entries[t].parts[part];
        m.dst[(t + size - c->rank) % size] = (u8 *)p.dst; // each rank begins with itself
        m.dstStride[(t + size - c->rank) % size] = p.dstStride;
        atomicOr(&m.align, (u32)(p.dst | p.src | p.dstStride | p.srcStride));
        if (p.dstStride != (i64)bytes || p.srcStride != (i64)bytes)
            atomicAnd(&m.dense, 0);
    }
    __syncthreads();
    if (t == 0) {
        // Units must not cross from one row to the next where there are gaps, nor from one rank's rows to another one's.
        if (!m.dense || a.kind == ALL_TO_ALLV)
            m.align |= (u32)bytes;
        else if (a.kind == BROADCAST)
            m.align |= (u32)(entries[a.peer].parts[part].srcRows * bytes);
        else
            for (u32 i = 0; i <= size; i++)
                m.align |= (u32)(sh.rows[i] * bytes);
        m.shift = min(4, __ffs(m.align | 16) - 1);
        m.unit = 1u << m.shift;
    }
    __syncthreads();
}

// slice is rank's share of n. Divisions of 64 bits take half a microsecond, most of what small calls have time for.
__device__ __forceinline__ void slice(u64 n, u32 rank, u32 size, u64 &lo, u64 &hi) {
    if (n < (1u << 26)) {
        lo = (u32)n * rank / size;
        hi = (u32)n * (rank + 1) / size;
    } else {
        lo = n * rank / size;
        hi = n * (rank + 1) / size;
    }
}

__device__ void gather(const Args &a, Shared &sh, Move &m) {
    Ctl *c = a.ctl;
    const Entry *entries = sh.entries;
    u32 size = c->size;
    for (u32 p = 0; p < a.entry.numParts; p++) {
        prepare(a, sh, m, p);
        u64 lo, hi;
        slice(sh.rows[size] * m.bytes >> m.shift, c->rank, size, lo, hi);
        for (u32 i = 0; i < size; i++) {
            u64 from = max(lo, sh.rows[i] * m.bytes >> m.shift), to = min(hi, sh.rows[i + 1] * m.bytes >> m.shift);
            const Part &part = entries[i].parts[p];
            if (from < to) // rows are counted from the result's first
                move_range(m, (const u8 *)part.src - sh.rows[i] * part.srcStride, part.srcStride, from, to);
        }
    }
}

__device__ void broadcast(const Args &a, Shared &sh, Move &m) {
    Ctl *c = a.ctl;
    const Entry &root = sh.entries[a.peer];
    for (u32 p = 0; p < a.entry.numParts; p++) {
        prepare(a, sh, m, p);
        u64 lo, hi;
        slice(root.parts[p].srcRows * m.bytes >> m.shift, c->rank, c->size, lo, hi);
        move_range(m, (const u8 *)root.parts[p].src, root.parts[p].srcStride, lo, hi);
    }
}
