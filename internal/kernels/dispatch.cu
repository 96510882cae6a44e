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
//	         Rows in their own order begin as soon as they have places, on warps that do not make the index.
//	finish   the second meeting of protocol.cuh: all rows have come.
//
// With a capacity and the policy to drop, choices are counted after the first meeting, without those of rows that do not
// go. A rank whose call was refused publishes -1 rows: then nobody sends anything.
// Launch: up to the rank's blocks of THREADS threads, all resident (they wait for peers and for the rank's own last block).
// Bytes: rows read once, written once for each place: N r (1 + D). Tested by package alltoall on a GPU, against its twin.

// pad writes what no rank sends: padding of this rank's index, and zero rows in Expanded.
__device__ __noinline__ void pad(const DispatchArgs &d, const u32 *total, const u32 *offset, u32 threads) {
    const Experts &x = d.ex.experts;
    if (x.alignment <= 1)
        return;
    u32 warp = threadIdx.x / 32, warps = threads / 32, lane = threadIdx.x & 31, first = first_of(x, x.rank);
    u64 base = d.ex.peers[x.rank];
    for (u32 l = blockIdx.x; l < x.numLocal; l += gridDim.x) {
        u32 g = first + l, from = offset[g] + total[g], to = offset[g] + padded(total[g], x.alignment);
        for (u32 s = from + threadIdx.x; s < to; s += threads) {
            ((int *)(base + d.bank.row))[s] = -1;
            ((int *)(base + d.bank.k))[s] = -1;
            ((float *)(base + d.bank.weight))[s] = 0;
        }
        if (!(d.flags & EXPANDED))
            continue;
        for (u32 s = from + warp; s < to; s += warps) {
            u8 *row = (u8 *)(base + d.bank.x + (u64)s * d.rowBytes);
            if ((d.rowBytes & 15) == 0) {
                for (u32 i = lane; i < d.rowBytes / 16; i += 32)
                    ((uint4 *)row)[i] = make_uint4(0, 0, 0, 0);
            } else {
                for (u32 i = lane; i < d.rowBytes; i += 32)
                    row[i] = 0;
            }
            for (u32 i = lane; i < d.scaleBytes; i += 32)
                ((u8 *)(base + d.bank.scales))[(u64)s * d.scaleBytes + i] = 0;
        }
    }
}

// conclude writes counts and offsets of this rank. One block; empty after an error.
__device__ __noinline__ void conclude(const DispatchArgs &d, const Route &r, const u32 *total, const u32 *offset, u32 bad, bool empty,
                         u32 threads) {
    const Experts &x = d.ex.experts;
    u32 t = threadIdx.x, n = x.numLocal, first = first_of(x, x.rank);
    if (d.flags & REFUSE) // it has no bank
        return;
    int *counts = (int *)d.bank.counts, *offsets = (int *)d.bank.offsets;
    u64 *stats = (u64 *)d.ex.stats;
    for (u32 l = t; l < n; l += threads) {
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
    offsets[n] = empty ? 0 : r.numSlots;
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
        r.local = solo && (n + blocks - 1) / blocks * d.ex.fan <= FEW_SENT;
        r.masks = solo ? r.few : masks_of(d.ex);
        r.lo = solo ? 0 : n * b / blocks;
        r.hi = solo ? n : n * (b + 1) / blocks;
        r.first = solo ? b : r.lo;
        r.step = solo ? blocks : 1;
        r.warps = counting_warps(columns);
    }
    __syncthreads();
}

// Crew is the threads that work on the index: all of the block, or those that do not push meanwhile.
struct Crew {
    u32 size;
    __device__ void sync() const { sync_some<1>(size); }
};

// Tables are a block's counters in shared memory.
struct Tables {
    u32 *perRank, *perExpert;            // [warps][numRanks + 1], [warps][numPhysical]
    u32 *total, *experts;                // [numRanks + 1], and behind it [numPhysical]
    u32 *before, *offset;                // [numPhysical]
    u32 numRanks, numExperts, width; // columns: ranks and the ids that are none; experts; both
};

__device__ __forceinline__ Tables tables_of(const Experts &x, u32 warps, u32 *pool) {
    Tables b;
    b.numRanks = x.numRanks + 1;
    b.numExperts = x.numPhysical;
    b.width = b.numRanks + b.numExperts;
    b.perRank = pool;
    b.perExpert = b.perRank + warps * b.numRanks;
    b.total = b.perExpert + warps * b.numExperts;
    b.experts = b.total + b.numRanks;
    b.before = b.total + b.width;
    b.offset = b.before + b.numExperts;
    return b;
}

// count makes the block's counts, and this rank's where it returns true: in the block that speaks for it.
__device__ bool count(const DispatchArgs &d, Route &r, const Tables &b, bool solo) {
    u32 t = threadIdx.x, warp = t / 32;
    STAMP(d.ex.stats, d.ex.experts, 9);
    for (u32 i = t; i < r.warps * b.width; i += blockDim.x)
        b.perRank[i] = 0;
    __syncthreads();
    STAMP(d.ex.stats, d.ex.experts, 10);
    if (warp < r.warps) {
        count_rows(d, r, b.perRank + warp * b.numRanks);
        STAMP(d.ex.stats, d.ex.experts, 11);
        if (!(d.flags & CLIP))
            count_choices(d, r, b.perExpert + warp * b.numExperts);
    }
    STAMP(d.ex.stats, d.ex.experts, 12);
    __syncthreads();
    prefix_warps(b.perRank, b.total, r.warps, b.numRanks, t);
    prefix_warps(b.perExpert, b.experts, r.warps, b.numExperts, blockDim.x - 1 - t); // other threads, at the same time
    __syncthreads();
    return solo ? blockIdx.x == 0 : gather_blocks(d, r, b.total, 0, b.width, b.width);
}

// recount counts choices again, without those of rows that do not go, and tells all ranks.
__device__ __noinline__ void recount(const DispatchArgs &d, Route &r, const Tables &b, bool solo, u64 e) {
    u32 warp = threadIdx.x / 32;
    if (warp < r.warps)
        count_choices(d, r, b.perExpert + warp * b.numExperts);
    __syncthreads();
    prefix_warps(b.perExpert, b.experts, r.warps, b.numExperts, threadIdx.x);
    __syncthreads();
    if (solo ? blockIdx.x == 0 : gather_blocks(d, r, b.experts, b.numRanks, b.numExperts, b.width))
        speak(d, b.experts, e);
    __syncthreads();
}

// make_index writes this rank's entries of everyone's index. The crew. It returns why it gave up, to each thread.
__device__ u32 make_index(const DispatchArgs &d, Route &r, const Tables &b, bool solo, u64 e, u32 bad, bool writes, Crew crew,
                          u32 &from) {
    const Experts &x = d.ex.experts;
    u32 t = threadIdx.x, warp = t / 32;
    const volatile u32 *earlier = block_counts(d.ex, b.width) + b.numRanks;
    for (u32 i = t; i < b.numExperts; i += crew.size)
        b.experts[i] = b.before[i] = 0;
    crew.sync();
    u32 why = listen(d, b.experts, b.before, e, from, crew.size);
    if (why)
        r.gone = 1;
    crew.sync();
    if (r.gone)
        return why;
    STAMP(d.ex.stats, x, 13);
    place_experts(x, b.experts, b.offset, &r.numSlots, crew.size);
    crew.sync();
    for (u32 i = t; i < b.numExperts; i += crew.size)
        b.before[i] += b.offset[i] + (solo ? 0 : earlier[i]);
    crew.sync();
    STAMP(d.ex.stats, x, 5);
    if (warp < r.warps)
        place_choices(d, r, b.perExpert + warp * b.numExperts, b.before, solo);
    STAMP(d.ex.stats, x, 14);
    pad(d, b.experts, b.offset, crew.size);
    if (writes)
        conclude(d, r, b.experts, b.offset, bad, false, crew.size);
    return 0;
}

// refuse is the end of a dispatch that sends nothing.
__device__ __noinline__ void refuse(const DispatchArgs &d, const Route &r, const Tables &b, bool met, u32 refused, u32 given) {
    const Args &a = d.meet;
    u32 me = d.ex.experts.rank;
    if (met && threadIdx.x == 0 && !(d.flags & REFUSE)) {
        if (refused == BAD_TOKENS)
            report(a.ctl, a, record(BAD_TOKENS, me, me, (int)given, min(d.tokens, d.ex.maxTokens)));
        else
            report(a.ctl, a, record(r.why, r.fullest, r.fullest, r.why == OVERFLOWS ? (int)r.last : 0, d.ex.maxRecv));
    }
    conclude(d, r, b.experts, b.offset, 0, true, blockDim.x);
}

// weft_dispatch: see above. Dynamic shared memory: warps x (numRanks + 1), warps x numPhysical, 3 x numPhysical + numRanks + 1
// words; then, where bulk says, BULK_BYTES.
extern "C" __global__ void __launch_bounds__(THREADS, 1) weft_dispatch(const __grid_constant__ DispatchArgs d) {
    extern __shared__ __align__(128) u32 pool[];
    __shared__ Shared sh;
    __shared__ Route r;
    __shared__ u64 full[48];
    const Experts &x = d.ex.experts;
    const Args &a = d.meet;
    follow();
    STAMP(d.ex.stats, x, 0);
    u32 t = threadIdx.x, warp = t / 32;
    u64 e = next_epoch(a);
    start(d, r, x.numPhysical);
    u32 refused = r.why, given = r.fullest;
    Tables b = tables_of(x, r.warps, pool);
    bool solo = r.step != 1 || gridDim.x == 1, clip = d.flags & CLIP;
    bool speaks = count(d, r, b, solo);
    STAMP(d.ex.stats, x, 1);
    if (speaks) {
        if (t < MAX_RANKS)
            own_counts(d.ex)[t] = refused ? ~0u : t < x.numRanks ? b.total[t] : 0;
        if (!clip)
            speak(d, b.experts, e);
    }
    __syncthreads();
    STAMP(d.ex.stats, x, 2);
    u32 bad = b.total[x.numRanks]; // the rank's in the block that speaks
    int state = begin(a, sh, e, speaks);
    STAMP(d.ex.stats, x, 3);
    if (state == LEAVE) {
        if (speaks)
            conclude(d, r, b.experts, b.offset, 0, true, blockDim.x);
        return;
    }
    if (state == GO)
        matrix(d, sh, r);
    if (state != GO || r.why != 0) {
        if (speaks)
            refuse(d, r, b, state == GO, refused, given);
        finish(a, sh, state == FAULT); // a rank in another call does not come to the second meeting
        return;
    }
    if (!solo)
        __threadfence(); // what the rank's last block wrote before it spoke
    if (t < x.numRanks)
        r.chunk[t] = solo ? 0 : *(volatile u32 *)(block_counts(d.ex, b.width) + t);
    if (t == 0)
        r.gone = 0;
    __syncthreads();
    if (warp < r.warps)
        place_rows(d, r, b.perRank + warp * b.numRanks, solo);
    __syncthreads();
    STAMP(d.ex.stats, x, 4);
    if (clip)
        recount(d, r, b, solo, e);
    // Rows in their own order can go while the index is made.
    bool bulk = may_bulk(d, r), early = bulk && !(d.flags & EXPANDED);
    u32 why = 0, from = 0;
    Crew crew = {early ? COUNTERS * 32 : blockDim.x};
    if (t < crew.size)
        why = make_index(d, r, b, solo, e, bad, speaks, crew, from);
    STAMP(d.ex.stats, x, 6);
    bool gone = !early && __syncthreads_or(why);
    // One call: with two the compiler has no registers left for what is called.
    if (!gone && (!early || t >= crew.size))
        push_rows(d, r, bulk ? (u8 *)pool + d.bulk : 0, full);
    if (__syncthreads_or(why)) {
        gave_up(a.ctl, a, sh, why, from, e, 0, 0);
        abandon(a, sh);
        if (speaks)
            conclude(d, r, b.experts, b.offset, 0, true, blockDim.x);
        return;
    }
    push_scales(d, r);
    STAMP(d.ex.stats, x, 7);
    finish(a, sh, false);
    STAMP(d.ex.stats, x, 8);
}
