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

// push_rows sends the block's rows. Units of a row are spread over warps when tokens are few.
__device__ void push_rows(const DispatchArgs &d, const Route &r) {
    const Exchange &ex = d.ex;
    u32 lane = threadIdx.x & 31, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    u32 limit = r.step == 1 ? r.hi : r.tokens;
    u32 n = limit > r.first ? (limit - r.first + r.step - 1) / r.step : 0;
    if (n == 0)
        return;
    u64 align = d.src | (u64)d.srcStride | d.rowBytes;
    u32 unit = align & 1 ? 1 : align & 2 ? 2 : align & 4 ? 4 : align & 8 ? 8 : 16;
    u32 groups = (ex.hidden + GROUP - 1) / GROUP;
    u32 units = d.fp8 ? groups : d.rowBytes / unit, least = d.fp8 ? 1 : 32;
    u32 parts = warps / n;
    parts = parts > (units + least - 1) / least ? (units + least - 1) / least : parts;
    parts = parts < 1 ? 1 : parts;
    bool vector = d.fp8 && vectors4(d.src, d.srcStride, d.dtype), expanded = d.flags & EXPANDED;
    for (u32 i = warp; i < n * parts; i += warps) {
        u32 token = r.first + i / parts * r.step, part = i % parts;
        int at = -1, rank = -1;
        if (expanded) {
            if (lane < ex.experts.topK) {
                const Term &v = ((const Term *)d.bank.terms)[(u64)token * ex.experts.topK + lane];
                at = v.slot;
                rank = v.rank;
            }
        } else if (lane < ex.fan) {
            Sent v = ((const Sent *)d.bank.rows)[(u64)token * ex.fan + lane];
            at = v.row;
            rank = v.rank;
        }
        u32 ends = __ballot_sync(~0u, rank < 0);
        u32 places = ends ? __ffs(ends) - 1 : 32;
        u64 base = lane < places ? ex.peers[rank] : 0;
        u64 place = base + d.bank.x + (u64)at * d.rowBytes;
        const u8 *src = (const u8 *)d.src + (u64)token * d.srcStride;
        u32 lo = units * part / parts, hi = units * (part + 1) / parts;
        if (places == 0)
            continue;
        if (d.fp8) {
            u64 scales = base + d.bank.scales + (u64)at * groups * 4;
            for (u32 g = lo; g < hi; g++) {
                float v[4], scale;
                u32 c = g * GROUP + lane * 4;
                load4(v, src, d.dtype, c, ex.hidden, vector);
                u32 q = quantise4(v, scale);
                for (u32 p = 0; p < places; p++)
                    store4((u8 *)__shfl_sync(~0u, place, p), q, c, ex.hidden);
                if (lane < places)
                    ((float *)scales)[g] = scale;
            }
            continue;
        }
        switch (unit) {
        case 16: copy_out<uint4>(src, place, places, lo, hi); break;
        case 8: copy_out<uint2>(src, place, places, lo, hi); break;
        case 4: copy_out<u32>(src, place, places, lo, hi); break;
        case 2: copy_out<u16>(src, place, places, lo, hi); break;
        default: copy_out<u8>(src, place, places, lo, hi);
        }
    }
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

// weft_dispatch: see above. Dynamic shared memory: warps x (numRanks + 1), warps x numPhysical, 3 x numPhysical + numRanks + 1.
extern "C" __global__ void __launch_bounds__(THREADS, 1) weft_dispatch(const __grid_constant__ DispatchArgs d) {
    extern __shared__ u32 pool[];
    __shared__ Shared sh;
    __shared__ Route r;
    __shared__ u32 numSlots;
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
    __syncthreads();
    push_rows(d, r);
    finish(a, sh, false);
}
