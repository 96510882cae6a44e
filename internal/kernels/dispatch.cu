// Dispatch: every row goes once to each rank that owns one of its experts (Expanded: once for each expert), straight to
// its final place, and its entries of the index too. One kernel:
//
//	count    each block its share of the tokens (all of them when they are few): rows per rank, choices per expert; the last
//	         block adds up. Nothing waits.
//	meet     the entry carries rows per rank; lines in the exchanger's own region carry choices per expert, 8 bytes with the
//	         epoch in each 16-byte store, so that zero is not "not there yet". Every rank then knows the whole matrix.
//	place    rows at (source, token), slots at (expert, source, token, k): prefix sums of the matrix, and the order within
//	         a block's tokens. No atomic decides a place.
//	push     a warp reads a part of a row once and writes it to all its places.
//	finish   the second meeting of protocol.cuh: all rows have come.
//
// With a capacity and the policy to drop, choices are counted after the first meeting, without those of rows that do not
// go. A rank whose call was refused publishes -1 rows: then nobody sends anything.
// Launch: up to the rank's blocks of THREADS threads, all resident (they wait for peers and for the rank's own last block).
// Bytes: rows read once, written once for each place: N r (1 + D). Tested by package alltoall on a GPU, against its twin.

// copy_out copies units [lo, hi) of V of a row to n places; lane i holds place i.
template <class V> __device__ __forceinline__ void copy_out(const u8 *src, u64 place, u32 n, u32 lo, u32 hi) {
    const int UNROLL = sizeof(V) == 16 ? 8 : 4;
    u32 lane = threadIdx.x & 31;
    for (u32 u = lo; u < hi; u += 32 * UNROLL) {
        V v[UNROLL];
#pragma unroll
        for (int i = 0; i < UNROLL; i++)
            if (u + i * 32 + lane < hi)
                v[i] = load_stream((const V *)src + u + i * 32 + lane);
        for (u32 p = 0; p < n; p++) {
            V *to = (V *)__shfl_sync(~0u, place, p) + u + lane;
#pragma unroll
            for (int i = 0; i < UNROLL; i++)
                if (u + i * 32 + lane < hi)
                    to[i * 32] = v[i];
        }
    }
}

// Places are where a token's row goes: lane i of a warp holds place i.
struct Places {
    u64 row, base; // its address; its rank's region
    int at;
    u32 n;
};

__device__ __forceinline__ Places places_of(const DispatchArgs &d, u32 token) {
    const Exchange &ex = d.ex;
    u32 lane = threadIdx.x & 31;
    int at = -1, rank = -1;
    if (d.flags & EXPANDED) {
        if (lane < ex.experts.topK) {
            Term v = ((const Term *)d.bank.terms)[(u64)token * ex.experts.topK + lane];
            at = v.slot;
            rank = v.rank;
        }
    } else if (lane < ex.fan) {
        Sent v = ((const Sent *)d.bank.rows)[(u64)token * ex.fan + lane];
        at = v.row;
        rank = v.rank;
    }
    u32 ends = __ballot_sync(~0u, rank < 0);
    Places p = {0, 0, at, ends ? (u32)__ffs(ends) - 1 : 32};
    if (lane < p.n) {
        p.base = ex.peers[rank];
        p.row = p.base + d.bank.x + (u64)at * d.rowBytes;
    }
    return p;
}

// Work is the block's share of pushing: its tokens, and how many warps share a row of units.
struct Work {
    u32 n, parts;
};

__device__ __forceinline__ Work work_of(const Route &r, u32 units, u32 least, u32 warps) {
    u32 limit = r.step == 1 ? r.hi : r.tokens;
    Work w = {limit > r.first ? (limit - r.first + r.step - 1) / r.step : 0, 1};
    u32 most = (units + least - 1) / least;
    if (w.n > 0)
        w.parts = max(1u, min(warps / w.n, most));
    return w;
}

// push_fp8 narrows the block's rows on their way.
__device__ void push_fp8(const DispatchArgs &d, const Route &r) {
    u32 lane = threadIdx.x & 31, hidden = d.ex.hidden, groups = (hidden + GROUP - 1) / GROUP;
    Work w = work_of(r, groups, 1, blockDim.x / 32);
    bool vector = vectors4(d.src, d.srcStride, d.dtype);
    for (u32 i = threadIdx.x / 32; i < w.n * w.parts; i += blockDim.x / 32) {
        u32 token = r.first + i / w.parts * r.step, part = i % w.parts;
        Places p = places_of(d, token);
        const u8 *src = (const u8 *)d.src + (u64)token * d.srcStride;
        float *scales = (float *)(p.base + d.bank.scales) + (u64)p.at * groups;
        for (u32 g = groups * part / w.parts; p.n > 0 && g < groups * (part + 1) / w.parts; g++) {
            float v[4], scale;
            u32 c = g * GROUP + lane * 4;
            load4(v, src, d.dtype, c, hidden, vector);
            u32 q = quantise4(v, scale);
            DELAY();
            for (u32 k = 0; k < p.n; k++)
                store4((u8 *)__shfl_sync(~0u, p.row, k), q, c, hidden);
            if (lane < p.n)
                scales[g] = scale;
        }
    }
}

// push_units sends the block's rows through registers, in the widest units that alignment allows.
__device__ void push_units(const DispatchArgs &d, const Route &r) {
    u64 align = d.src | (u64)d.srcStride | d.rowBytes;
    u32 unit = align & 1 ? 1 : align & 2 ? 2 : align & 4 ? 4 : align & 8 ? 8 : 16, units = d.rowBytes / unit;
    Work w = work_of(r, units, 32, blockDim.x / 32);
    for (u32 i = threadIdx.x / 32; i < w.n * w.parts; i += blockDim.x / 32) {
        u32 token = r.first + i / w.parts * r.step, part = i % w.parts;
        Places p = places_of(d, token);
        const u8 *src = (const u8 *)d.src + (u64)token * d.srcStride;
        u32 lo = (u32)((u64)units * part / w.parts), hi = (u32)((u64)units * (part + 1) / w.parts);
        DELAY();
        switch (unit) {
        case 16: copy_out<uint4>(src, p.row, p.n, lo, hi); break;
        case 8: copy_out<uint2>(src, p.row, p.n, lo, hi); break;
        case 4: copy_out<u32>(src, p.row, p.n, lo, hi); break;
        case 2: copy_out<u16>(src, p.row, p.n, lo, hi); break;
        default: copy_out<u8>(src, p.row, p.n, lo, hi);
        }
    }
}

#if __CUDA_ARCH__ >= 900
// STREAMS warps push by bulk copies; each has a ring of STAGES pieces of shared memory.
#define STREAMS 4u
#define STAGES 6u
#define AHEAD 3u
#define PIECE 8192u
#define BULK_BYTES (STREAMS * STAGES * PIECE)

// push_bulk sends the block's rows by bulk copies: a row's piece is loaded once into shared memory and stored from there to
// all its places, a store by each lane. Nothing passes through registers; loads of AHEAD pieces and the stores of others are
// in flight. A lane waits for its own stores before the second meeting.
__device__ void push_bulk(const DispatchArgs &d, const Route &r, u8 *memory, u64 *full) {
    u32 warp = threadIdx.x / 32, lane = threadIdx.x & 31, pieces = (d.rowBytes + PIECE - 1) / PIECE;
    Work w = work_of(r, 1, 1, 1);
    u32 count = w.n * pieces, mine = warp < count ? (count - warp + STREAMS - 1) / STREAMS : 0;
    full += warp * STAGES;
    memory += warp * STAGES * PIECE;
    if (lane == 0)
        for (u32 i = 0; i < STAGES; i++)
            full_init(full + i);
    async_fence(); // the barriers; and rows that earlier kernels wrote
    __syncwarp();
    Places p = {};
    for (u32 done = 0, loads = 0; done < mine; done++) {
        for (; loads < mine && loads < done + AHEAD; loads++) {
            async_read<STAGES - AHEAD>(); // what was stored from this stage has been read
            __syncwarp();
            if (lane == 0) {
                u32 i = warp + loads * STREAMS, token = r.first + i / pieces * r.step, at = i % pieces * PIECE;
                u32 bytes = min(PIECE, d.rowBytes - at), s = loads % STAGES;
                full_expect(full + s, bytes);
                async_load(memory + s * PIECE, (const u8 *)d.src + (u64)token * d.srcStride + at, bytes, full + s);
            }
        }
        u32 i = warp + done * STREAMS, s = done % STAGES, at = i % pieces * PIECE;
        p = places_of(d, r.first + i / pieces * r.step);
        full_wait(full + s, done / STAGES & 1);
        DELAY();
        if (lane < p.n)
            async_store((u8 *)p.row + at, memory + s * PIECE, min(PIECE, d.rowBytes - at));
        async_commit();
    }
    async_complete();
}
#endif

// push_rows sends the block's rows. bulk is shared memory for bulk copies, or 0.
__device__ void push_rows(const DispatchArgs &d, const Route &r, u8 *bulk, u64 *full) {
    if (d.fp8) {
        push_fp8(d, r);
        return;
    }
#if __CUDA_ARCH__ >= 900
    bool aligned = ((d.src | (u64)d.srcStride | d.rowBytes) & 15) == 0;
    if (bulk && aligned && d.rowBytes >= 1024 && r.step == 1) {
        if (threadIdx.x / 32 < STREAMS)
            push_bulk(d, r, bulk, full);
        return;
    }
#endif
    push_units(d, r);
}

// pad writes what no rank sends: padding of this rank's index, and zero rows in Expanded.
__device__ void pad(const DispatchArgs &d, const u32 *total, const u32 *offset) {
    const Experts &x = d.ex.experts;
    if (x.alignment <= 1)
        return;
    u32 warp = threadIdx.x / 32, warps = blockDim.x / 32, lane = threadIdx.x & 31, first = first_of(x, x.rank);
    u64 base = d.ex.peers[x.rank];
    for (u32 l = blockIdx.x; l < x.numLocal; l += gridDim.x) {
        u32 g = first + l, from = offset[g] + total[g], to = offset[g] + padded(total[g], x.alignment);
        for (u32 s = from + threadIdx.x; s < to; s += blockDim.x) {
            ((int *)(base + d.bank.row))[s] = -1;
            ((int *)(base + d.bank.k))[s] = -1;
            ((float *)(base + d.bank.weight))[s] = 0;
        }
        if (!(d.flags & EXPANDED))
            continue;
        u32 groups = d.fp8 ? (d.ex.hidden + GROUP - 1) / GROUP : 0;
        for (u32 s = from + warp; s < to; s += warps) {
            u8 *row = (u8 *)(base + d.bank.x + (u64)s * d.rowBytes);
            if ((d.rowBytes & 15) == 0) {
                for (u32 i = lane; i < d.rowBytes / 16; i += 32)
                    ((uint4 *)row)[i] = make_uint4(0, 0, 0, 0);
            } else {
                for (u32 i = lane; i < d.rowBytes; i += 32)
                    row[i] = 0;
            }
            for (u32 i = lane; i < groups; i += 32)
                ((float *)(base + d.bank.scales))[(u64)s * groups + i] = 0;
        }
    }
}

// conclude writes counts and offsets of this rank. One block; empty after an error.
__device__ void conclude(const DispatchArgs &d, const Shared &sh, const Route &r, const u32 *total, const u32 *offset,
                         u32 numSlots, u32 bad, bool empty) {
    const Experts &x = d.ex.experts;
    u32 t = threadIdx.x, n = x.numLocal, first = first_of(x, x.rank);
    if (d.flags & REFUSE) // it has no bank
        return;
    int *counts = (int *)d.bank.counts, *offsets = (int *)d.bank.offsets;
    u64 *stats = (u64 *)d.ex.stats;
    for (u32 l = t; l < n; l += blockDim.x) {
        u32 v = empty ? 0 : total[first + l];
        counts[l] = v;
        counts[n + l] = padded(v, x.alignment);
        offsets[l] = empty ? 0 : offset[first + l];
        stats[NUM_STATS + l] += v;
        if (v)
            atomicAdd(&stats[4], (u64)v);
    }
    if (t != 0)
        return;
    offsets[n] = empty ? 0 : numSlots;
    *(int *)d.bank.numRows = empty ? 0 : r.recv;
    *(int *)d.bank.numTokens = empty ? 0 : r.tokens;
    ((int *)d.bank.dropped)[0] = empty ? 0 : bad;
    ((int *)d.bank.dropped)[1] = empty ? 0 : r.dropped;
    if (empty)
        return;
    u64 copies = 0;
    for (u32 i = 0; i < x.numRanks; i++)
        copies += r.keep[i];
    stats[0] += 1;
    stats[1] += r.tokens;
    stats[2] += copies;
    stats[3] += copies - r.keep[x.rank];
    stats[5] += bad;
    stats[6] += r.dropped;
}

__device__ void start(const DispatchArgs &d, Route &r, u32 columns) {
    if (threadIdx.x == 0) {
        int n = d.tokens, limit = d.tokens;
        r.why = 0;
        if (d.numTokens) {
            n = *(const int *)d.numTokens;
            if (n < 0 || n > limit || n > (int)d.ex.maxTokens) {
                r.why = BAD_TOKENS;
                r.fullest = n;
            }
        }
        if (d.flags & REFUSE)
            r.why = REFUSED;
        if (r.why)
            n = 0;
        u32 b = blockIdx.x, blocks = gridDim.x;
        bool solo = n <= (int)SOLO;
        r.tokens = n;
        r.masks = solo ? r.few : masks_of(d.ex);
        r.lo = solo ? 0 : (u32)((u64)n * b / blocks);
        r.hi = solo ? n : (u32)((u64)n * (b + 1) / blocks);
        r.first = solo ? b : r.lo;
        r.step = solo ? blocks : 1;
        r.warps = counting_warps(columns);
    }
    __syncthreads();
}

// weft_dispatch: see above. Dynamic shared memory: warps x (numRanks + 1), warps x numPhysical, 3 x numPhysical + numRanks + 1 words,
// or BULK_BYTES when bulk is set: rows lie there when counters are no longer needed.
extern "C" __global__ void __launch_bounds__(THREADS, 1) weft_dispatch(const __grid_constant__ DispatchArgs d) {
    extern __shared__ __align__(128) u32 pool[];
    __shared__ Shared sh;
    __shared__ Route r;
    __shared__ u32 numSlots;
    __shared__ u64 full[32];
    const Experts &x = d.ex.experts;
    const Args &a = d.meet;
    u32 t = threadIdx.x, warp = t / 32, experts = x.numPhysical, ranks = x.numRanks + 1, width = experts + ranks;
    u64 e = next_epoch(a);
    start(d, r, experts);
    u32 refused = r.why, given = r.fullest;
    u32 *perRank = pool, *perExpert = perRank + r.warps * ranks, *total = perExpert + r.warps * experts;
    u32 *before = total + width, *offset = before + experts; // total: ranks, then experts
    u32 *totalExperts = total + ranks;
    bool solo = r.step != 1 || gridDim.x == 1, clip = d.flags & CLIP;
    for (u32 i = t; i < r.warps * width; i += blockDim.x)
        pool[i] = 0;
    __syncthreads();
    if (warp < r.warps) {
        count_rows(d, r, perRank + warp * ranks);
        if (!clip)
            count_choices(d, r, perExpert + warp * experts);
    }
    __syncthreads();
    prefix_warps(perRank, total, r.warps, ranks);
    prefix_warps(perExpert, totalExperts, r.warps, experts);
    __syncthreads();
    bool speaks = solo ? blockIdx.x == 0 : gather_blocks(d, r, total, 0, width, width);
    if (speaks) {
        if (t < MAX_RANKS)
            own_counts(d.ex)[t] = refused ? ~0u : t < x.numRanks ? total[t] : 0;
        if (!clip)
            speak(d, totalExperts, e);
    }
    __syncthreads();
    u32 bad = total[x.numRanks]; // of the last block only, unless solo
    bool writes = speaks;        // one block knows the rank's totals
    int state = begin(a, sh, e, speaks);
    if (state == LEAVE) {
        if (writes)
            conclude(d, sh, r, total, offset, 0, 0, true);
        return;
    }
    if (state == GO)
        matrix(d, sh, r);
    if (state != GO || r.why != 0) {
        if (writes) {
            if (state == GO && t == 0 && !(d.flags & REFUSE)) {
                if (refused == BAD_TOKENS)
                    report(a.ctl, a, record(BAD_TOKENS, x.rank, x.rank, (int)given, d.tokens < d.ex.maxTokens ? d.tokens : d.ex.maxTokens));
                else
                    report(a.ctl, a, record(r.why, r.fullest, r.fullest, r.why == OVERFLOWS ? (int)r.last : 0, d.ex.maxRecv));
            }
            conclude(d, sh, r, total, offset, 0, 0, true);
        }
        finish(a, sh, false);
        return;
    }
    // What earlier blocks have, for this one. Solo blocks have everything.
    __threadfence();
    const volatile u32 *earlier = block_counts(d.ex, width);
    if (t < x.numRanks)
        r.chunk[t] = solo ? 0 : earlier[t];
    __syncthreads();
    if (warp < r.warps)
        place_rows(d, r, perRank + warp * ranks, solo);
    __syncthreads();
    if (clip) {
        if (warp < r.warps)
            count_choices(d, r, perExpert + warp * experts);
        __syncthreads();
        prefix_warps(perExpert, totalExperts, r.warps, experts);
        __syncthreads();
        if (solo ? blockIdx.x == 0 : gather_blocks(d, r, totalExperts, ranks, experts, width))
            speak(d, totalExperts, e);
        __syncthreads();
    }
    for (u32 i = t; i < experts; i += blockDim.x)
        totalExperts[i] = before[i] = 0;
    __syncthreads();
    u32 from = 0, why = listen(d, totalExperts, before, e, from);
    if (__syncthreads_or(why)) {
        gave_up(a.ctl, a, sh, why, from, e, 0, 0);
        abandon(a, sh);
        if (writes)
            conclude(d, sh, r, total, offset, 0, 0, true);
        return;
    }
    __threadfence();
    place_experts(x, totalExperts, offset, &numSlots);
    __syncthreads();
    for (u32 i = t; i < experts; i += blockDim.x)
        before[i] += offset[i] + (solo ? 0 : earlier[ranks + i]);
    __syncthreads();
    if (warp < r.warps)
        place_choices(d, r, perExpert + warp * experts, before, solo);
    pad(d, totalExperts, offset);
    if (writes)
        conclude(d, sh, r, totalExperts, offset, numSlots, bad, false);
#if __CUDA_ARCH__ >= 900
    async_fence(); // what follows writes where counters were
#endif
    __syncthreads();
    push_rows(d, r, d.bulk ? (u8 *)pool : 0, full);
    finish(a, sh, false);
}
