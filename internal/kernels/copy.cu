// Collectives that only move bytes: all_gather(v), alltoallv, broadcast, send, recv, and copies of one rank's memory.
//
// all_gather and broadcast cut the result into equal slices, one for each rank: it reads its slice once, wherever it lies, and
// writes it to all ranks. With equal counts that is its own source; with skewed counts the other ranks help, so that skew
// costs nothing per byte. Bytes of a result of S bytes: S read, P S written over all ranks.
//
// alltoallv is pulled by the receiver. Where all ranks share a GPU and one receives much more than the others, the
// matrix is cut into equal slices too. Bytes: read once, written once.
//
// Launch: any number of blocks of THREADS threads; weft_send and weft_barrier one block.

template <class V> __device__ __forceinline__ V load_stream(const V *p) { return *(const volatile V *)p; }
template <> __device__ __forceinline__ uint4 load_stream(const uint4 *p) {
    uint4 v;
    asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p) : "memory");
    return v;
}
template <> __device__ __forceinline__ uint2 load_stream(const uint2 *p) {
    uint2 v;
    asm volatile("ld.global.L1::no_allocate.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(p) : "memory");
    return v;
}

// Team is the threads that share one segment.
struct Team {
    u32 id, size;
};

// everyone is all threads of the launch.
__device__ __forceinline__ Team everyone() {
    Team t = {blockIdx.x * blockDim.x + threadIdx.x, gridDim.x * blockDim.x};
    return t;
}

// small is the bytes up to which a segment gets its share of the warps instead of all: segments then run side by side.
#define SMALL (64 << 10)

// team_of splits the launch's warps over num segments; segment k's threads get their place in it, others size 0.
__device__ __forceinline__ Team team_of(u32 k, u32 num) {
    u32 warp = blockIdx.x + threadIdx.x / 32 * gridDim.x, warps = gridDim.x * (blockDim.x / 32);
    if (warps < num)
        return everyone();
    u32 mine = (warps - k + num - 1) / num;
    Team t = {warp / num * 32 + (threadIdx.x & 31), warp % num == k ? mine * 32 : 0};
    return t;
}

// copy_units copies rows of per units of V. V's alignment holds for everything.
template <class V>
__device__ void copy_units(u8 *dst, i64 dstStride, const u8 *src, i64 srcStride, u64 rows, u64 per, Team team) {
    const int UNROLL = 8;
    if (rows == 1) {
        V *d = (V *)dst;
        const V *s = (const V *)src;
        u64 i = team.id, step = team.size;
        for (; i + (UNROLL - 1) * step < per; i += UNROLL * step) {
            V v[UNROLL];
#pragma unroll
            for (int k = 0; k < UNROLL; k++)
                v[k] = load_stream(s + i + k * step);
#pragma unroll
            for (int k = 0; k < UNROLL; k++)
                d[i + k * step] = v[k];
        }
        for (; i < per; i += step)
            d[i] = load_stream(s + i);
        return;
    }
    // Rows with gaps: the row and the unit in it advance without a division per unit.
    u64 row = team.id / per, at = team.id % per, stepRows = team.size / per, stepAt = team.size % per;
    while (row < rows) {
        V v[4];
        u8 *to[4];
#pragma unroll
        for (int k = 0; k < 4; k++) {
            to[k] = 0;
            if (row < rows) {
                v[k] = load_stream((const V *)(src + row * srcStride) + at);
                to[k] = dst + row * dstStride + at * sizeof(V);
            }
            row += stepRows;
            at += stepAt;
            if (at >= per) {
                at -= per;
                row++;
            }
        }
#pragma unroll
        for (int k = 0; k < 4; k++)
            if (to[k])
                *(V *)to[k] = v[k];
    }
}

// copy_rows copies rows of bytes with the widest unit that alignment allows.
__device__ void copy_rows(u8 *dst, i64 dstStride, const u8 *src, i64 srcStride, u64 rows, u64 bytes, Team team) {
    if (rows == 0 || bytes == 0 || team.size == 0 || (dst == src && dstStride == srcStride))
        return;
    if (dstStride == (i64)bytes && srcStride == (i64)bytes) {
        bytes *= rows;
        rows = 1;
    }
    u64 align = (u64)dst | (u64)src;
    if (rows > 1)
        align |= (u64)dstStride | (u64)srcStride;
    u32 unit = align & 1 ? 1 : align & 2 ? 2 : align & 4 ? 4 : align & 8 ? 8 : 16;
    u64 per = bytes / unit, rest = bytes % unit;
    if (per > 0) {
        switch (unit) {
        case 16: copy_units<uint4>(dst, dstStride, src, srcStride, rows, per, team); break;
        case 8: copy_units<uint2>(dst, dstStride, src, srcStride, rows, per, team); break;
        case 4: copy_units<u32>(dst, dstStride, src, srcStride, rows, per, team); break;
        case 2: copy_units<u16>(dst, dstStride, src, srcStride, rows, per, team); break;
        default: copy_units<u8>(dst, dstStride, src, srcStride, rows, per, team);
        }
    }
    if (rest > 0)
        copy_units<u8>(dst + per * unit, dstStride, src + per * unit, srcStride, rows, rest, team);
}

__device__ __forceinline__ u64 row_bytes(const Part &p) {
    const u8 sizes[] = {0, 4, 2, 2, 1, 1, 1, 1, 4, 8};
    return (u64)p.cols * sizes[p.dtype];
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
    u32 numDst, unit, dense, align;
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
#pragma unroll
            for (int k = 0; k < UNROLL; k++)
                if (u + k * step < hi)
                    *(V *)(to + row[k] * stride + at[k]) = v[k];
        }
    }
}

__device__ void move_range(const Move &m, const u8 *src, i64 srcStride, u64 lo, u64 hi) {
    u64 per = m.bytes / m.unit;
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
        m.align = (u32)bytes;
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
    if (t == 0)
        m.unit = m.align & 1 ? 1 : m.align & 2 ? 2 : m.align & 4 ? 4 : m.align & 8 ? 8 : 16;
    __syncthreads();
}

__device__ __forceinline__ void slice(u64 n, u32 rank, u32 size, u64 &lo, u64 &hi) {
    lo = n * rank / size;
    hi = n * (rank + 1) / size;
}

__device__ void gather(const Args &a, Shared &sh, Move &m) {
    Ctl *c = a.ctl;
    const Entry *entries = sh.entries;
    u32 size = c->size;
    for (u32 p = 0; p < a.entry.numParts; p++) {
        prepare(a, sh, m, p);
        u64 per = m.bytes / m.unit, lo, hi;
        slice(sh.rows[size] * per, c->rank, size, lo, hi);
        for (u32 i = 0; i < size; i++) {
            u64 from = max(lo, sh.rows[i] * per), to = min(hi, sh.rows[i + 1] * per);
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
        slice(root.parts[p].srcRows * (m.bytes / m.unit), c->rank, c->size, lo, hi);
        move_range(m, (const u8 *)root.parts[p].src, root.parts[p].srcStride, lo, hi);
    }
}

// matrix_fault is what is wrong with the rows that rank i sends to rank j: 0, or a reason.
__device__ u32 matrix_fault(const Entry *entries, u32 i, u32 j) {
    const Entry &from = entries[i], &to = entries[j];
    int n = from.send[j];
    if (!(from.hostCounts & 1) && (n < 0 || (u32)n > from.sendLimit))
        return SEND_RANGE;
    if (to.hostCounts & 2)
        return to.recv[i] != n ? EXPECTED : 0;
    return (u32)n > to.recvLimit ? TAKES : 0;
}

// matrix_plan checks what all ranks send to all and fills sh.rows with the prefix sums of what this rank receives.
__device__ bool matrix_plan(const Args &a, Shared &sh) {
    Ctl *c = a.ctl;
    const Entry *entries = sh.entries;
    u32 t = threadIdx.x, size = c->size;
    __syncthreads(); // begin has read sh.bad
    if (t == 0)
        sh.bad = ~0u;
    __syncthreads();
    for (u32 k = t; k < size * size; k += blockDim.x)
        if (matrix_fault(entries, k / size, k % size))
            blame(sh, k);
    __syncthreads();
    u32 bad = sh.bad;
    if (bad != ~0u) {
        u32 i = bad / size, j = bad % size, why = matrix_fault(entries, i, j);
        i64 limit = why == SEND_RANGE ? entries[i].sendLimit : why == EXPECTED ? entries[j].recv[i] : entries[j].recvLimit;
        report_once(a, record(why, i, j, entries[i].send[j], limit));
        return false;
    }
    __syncthreads(); // all have read sh.bad
    if (t < size) {
        i64 sum = 0;
        for (u32 j = 0; j < size; j++)
            sum += entries[t].send[j];
        for (u32 p = 0; p < entries[t].numParts; p++)
            if (entries[t].parts[p].srcRows < sum)
                blame(sh, t * MAX_PARTS + p);
    }
    if (t == 0) {
        int sum = 0;
        for (u32 i = 0; i < size; i++) {
            sh.rows[i] = sum;
            sum += entries[i].send[c->rank];
        }
        sh.rows[size] = sum;
    }
    __syncthreads();
    bad = sh.bad;
    if (bad != ~0u) {
        u32 i = bad / MAX_PARTS;
        i64 sum = 0;
        for (u32 j = 0; j < size; j++)
            sum += entries[i].send[j];
        report_once(a, record(SRC_SEND, i, i, sum, entries[i].parts[bad % MAX_PARTS].srcRows));
        return false;
    }
    if (a.all && blockIdx.x == 0 && t < size)
        ((int *)a.all)[t] = sh.rows[t + 1] - sh.rows[t];
    return true;
}

// skewed says whether a rank receives so much more than the average that the others should help. Alike on all ranks.
__device__ bool skewed(const Args &a, const Shared &sh) {
    const Ctl *c = a.ctl;
    const Entry *entries = sh.entries;
    u64 most = 0, sum = 0;
    for (u32 j = 0; a.shared && j < c->size; j++) {
        u64 rows = 0;
        for (u32 i = 0; i < c->size; i++)
            rows += entries[i].send[j];
        most = max(most, rows);
        sum += rows;
    }
    return most * c->size * 8 > sum * 9;
}

// exchange_slices moves this rank's equal share of the whole matrix, receivers first, whoever's rows they are.
__device__ void exchange_slices(const Args &a, Shared &sh, Move &m) {
    Ctl *c = a.ctl;
    const Entry *entries = sh.entries;
    u32 size = c->size;
    for (u32 p = 0; p < a.entry.numParts; p++) {
        prepare(a, sh, m, p);
        u64 per = m.bytes / m.unit, lo, hi, rows = 0;
        for (u32 k = 0; k < size * size; k++)
            rows += entries[k / size].send[k % size];
        slice(rows * per, c->rank, size, lo, hi);
        u64 at = 0; // units before the segment
        for (u32 j = 0; j < size; j++) {
            i64 dstRow = 0;
            for (u32 i = 0; i < size; i++) {
                u64 units = entries[i].send[j] * per;
                u64 from = max(lo, at), to = min(hi, at + units);
                if (from < to) {
                    i64 srcRow = 0;
                    for (u32 k = 0; k < j; k++)
                        srcRow += entries[i].send[k];
                    const Part &src = entries[i].parts[p], &dst = entries[j].parts[p];
                    __syncthreads();
                    if (threadIdx.x == 0) {
                        m.numDst = 1;
                        m.dst[0] = (u8 *)dst.dst + dstRow * dst.dstStride;
                        m.dstStride[0] = dst.dstStride;
                    }
                    __syncthreads();
                    move_range(m, (const u8 *)src.src + srcRow * src.srcStride, src.srcStride, from - at, to - at);
                }
                at += units;
                dstRow += entries[i].send[j];
            }
        }
    }
}

__device__ void exchange(const Args &a, Shared &sh) {
    Ctl *c = a.ctl;
    const Entry *entries = sh.entries;
    u32 size = c->size;
    for (u32 p = 0; p < a.entry.numParts; p++) {
        const Part &own = a.entry.parts[p];
        u64 bytes = row_bytes(own);
        bool all = (u64)sh.rows[size] * bytes > (u64)SMALL * size;
        for (u32 k = 0; k < size; k++) {
            u32 i = c->rank + k < size ? c->rank + k : c->rank + k - size;
            const Part &from = entries[i].parts[p];
            i64 before = 0;
            for (u32 j = 0; j < c->rank; j++)
                before += entries[i].send[j];
            copy_rows((u8 *)own.dst + sh.rows[i] * own.dstStride, own.dstStride,
                      (const u8 *)from.src + before * from.srcStride, from.srcStride, sh.rows[i + 1] - sh.rows[i], bytes,
                      all ? everyone() : team_of(k, size));
        }
    }
}

// weft_copy: all_gather, all_gatherv, alltoallv, broadcast.
extern "C" __global__ void __launch_bounds__(THREADS, 1) weft_copy(const __grid_constant__ Args a) {
    __shared__ Shared sh;
    __shared__ Move m;
    int state = begin(a, sh, next_epoch(a));
    if (state == LEAVE)
        return;
    if (state == GO) {
        if (a.kind == BROADCAST) {
            broadcast(a, sh, m);
        } else if (a.kind == ALL_TO_ALLV) {
            if (matrix_plan(a, sh)) {
                if (skewed(a, sh))
                    exchange_slices(a, sh, m);
                else
                    exchange(a, sh);
            }
        } else if (gather_plan(a, sh)) {
            gather(a, sh, m);
        }
    }
    finish(a, sh, false);
}

// weft_barrier: the first meeting is all of it. One block.
extern "C" __global__ void __launch_bounds__(THREADS, 1) weft_barrier(const __grid_constant__ Args a) {
    __shared__ Shared sh;
    if (begin(a, sh, next_epoch(a)) != LEAVE)
        finish(a, sh, true);
}

// weft_barriers meets a.peer times in one launch; it measures what a meeting costs inside a kernel.
extern "C" __global__ void __launch_bounds__(THREADS, 1) weft_barriers(const __grid_constant__ Args a) {
    __shared__ Shared sh;
    u64 e = next_epoch(a);
    for (u32 i = 0; i < a.peer; i++, e++)
        if (begin(a, sh, e) != GO)
            return;
    finish(a, sh, true);
}

__device__ bool same_shapes(const Entry &s, const Entry &r) {
    bool same = s.numParts == r.numParts;
    for (u32 p = 0; same && p < s.numParts; p++)
        same = s.parts[p].srcRows == r.parts[p].dstRows && s.parts[p].cols == r.parts[p].cols &&
               s.parts[p].dtype == r.parts[p].dtype;
    return same;
}

// weft_send: one block writes its entry to the receiver and waits for the answer, after which the source is free.
extern "C" __global__ void __launch_bounds__(THREADS, 1) weft_send(const __grid_constant__ Args a) {
    __shared__ Shared sh;
    Ctl *c = a.ctl;
    u64 e = c->sent[a.peer] + 1;
    stage(a, sh);
    push(a, sh, &c->peers[a.peer]->letters[c->rank], threadIdx.x, blockDim.x);
    __syncthreads();
    u32 why = 0;
    if (threadIdx.x == 0) {
        store_release(&c->peers[a.peer]->mail[c->rank], e);
        why = spin(c, &c->ack[a.peer], e, &c->closed[2][a.peer]);
    }
    if (__syncthreads_or(why) && gave_up(c, a, sh, why, a.peer, e, c->ack, 2)) {
        if (threadIdx.x == 0)
            c->launches++;
        return;
    }
    if (threadIdx.x == 0) {
        u64 answer = load_relaxed(&c->answers[a.peer]);
        if (answer & 1) {
            Record r = record(DISAGREE, c->rank, a.peer, 0, 0);
            r.epochSeen = a.entry.call;
            r.otherCall = answer >> 1;
            report(c, a, r);
        }
        c->sent[a.peer] = e;
        c->launches++;
    }
}

// weft_recv: pulls the sender's data and answers.
extern "C" __global__ void __launch_bounds__(THREADS, 1) weft_recv(const __grid_constant__ Args a) {
    __shared__ Shared sh;
    Ctl *c = a.ctl;
    u32 t = threadIdx.x;
    u64 e = c->received[a.peer] + 1;
    u32 why = t == 0 ? spin(c, &c->mail[a.peer], e, &c->closed[1][a.peer]) : 0;
    if (__syncthreads_or(why) && gave_up(c, a, sh, why, a.peer, e, c->mail, 2)) {
        abandon(a, sh);
        return;
    }
    const Entry &letter = c->letters[a.peer];
    bool same = same_shapes(letter, a.entry);
    for (u32 p = 0; same && p < a.entry.numParts; p++) {
        const Part &own = a.entry.parts[p], &from = letter.parts[p];
        copy_rows((u8 *)own.dst, own.dstStride, (const u8 *)from.src, from.srcStride, own.dstRows, row_bytes(own), everyone());
    }
    if (!last_block(a, sh, true) || t != 0)
        return;
    if (!same) {
        Record r = record(DISAGREE, a.peer, c->rank, 0, 0);
        r.epochSeen = letter.call;
        r.otherCall = a.entry.call;
        report(c, a, r);
    }
    c->doneBlocks = 0;
    c->received[a.peer] = e;
    c->launches++;
    store_relaxed(&c->peers[a.peer]->answers[c->rank], (u64)a.entry.call << 1 | !same);
    store_release(&c->peers[a.peer]->ack[c->rank], e);
}

// weft_leave tells all peers that this rank is in no later meeting. One block; it waits for nobody.
extern "C" __global__ void __launch_bounds__(THREADS, 1) weft_leave(const __grid_constant__ Args a) {
    Ctl *c = a.ctl;
    u32 t = threadIdx.x;
    if (t >= c->size || t == c->rank)
        return;
    Ctl *peer = c->peers[t];
    store_release(&peer->closed[0][c->rank], c->epoch + 1);
    store_release(&peer->closed[1][c->rank], c->sent[t] + 1);
    store_release(&peer->closed[2][c->rank], c->received[t] + 1);
}

// weft_memory copies rows in one rank's address space, pinned host memory included.
extern "C" __global__ void __launch_bounds__(THREADS, 1) weft_memory(const __grid_constant__ MemoryArgs a) {
    copy_rows((u8 *)a.dst, a.dstStride, (const u8 *)a.src, a.srcStride, a.rows, a.bytes, everyone());
}
