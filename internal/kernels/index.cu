// From expert ids to places: shared by dispatch and by the index of gathered rows.
//
// Experts are numbered globally by (rank, local expert): those of a rank lie together. A warp walks its rows in order, 32
// choices at a time; lanes with the same expert find their order among themselves by a match, and a counter per warp and
// expert carries on. So places follow (row, k) and no atomic decides one.

// Experts is where experts live: a table start[numExperts + 1], replicas[numPhysical]. The first more ranks own per + 1
// experts, the others per.
struct Experts {
    u64 table;
    u32 numExperts, numPhysical, numRanks, rank, plain, topK, numLocal, alignment; // plain: the expert's id is its number
    u32 per, more;
    u32 inversePer, inverseMore, inverseTopK; // 2^32 / per, / (per + 1), / topK, rounded up
    u32 pad;
};

// quotient divides by a number from 1 to 4096 whose inverse is given. n < 2^20 for up to 4096, n < 2^27 for up to 32.
__device__ __forceinline__ u32 quotient(u32 n, u32 inverse) { return inverse ? __umulhi(n, inverse) : n; } // 0: 2^32 / 1

// NUM_STATS counters come before those of each local expert: dispatches, tokens, copies, copies to others, slots, ids that
// go nowhere, copies without room.
#define NUM_STATS 8

// STAMP notes when block 0 comes to a phase, in cycles, behind the counters: in a build that looks for time.
#ifdef WEFT_STAMPS
#define STAMP(stats, experts, i)                                                                                               \
    if (blockIdx.x == 0 && threadIdx.x == 0)                                                                                   \
    ((u64 *)(stats))[NUM_STATS + (experts).numLocal + (i)] = clock64()
#else
#define STAMP(stats, experts, i)
#endif

// replica_of chooses among replicas, or maps ids to numbers in another order; -1 for an expert without a place.
__device__ __noinline__ int replica_of(const Experts &x, u32 source, u32 token, int id) {
    const int *start = (const int *)x.table;
    int at = start[id], n = start[id + 1] - at;
    if (n == 0)
        return -1;
    if (n > 1)
        at += (source + token) % n;
    return start[x.numExperts + 1 + at];
}

// place_of returns the global number of the expert that a choice goes to, or -1: the id is none, or nobody has the expert.
__device__ __forceinline__ int place_of(const Experts &x, u32 source, u32 token, int id) {
    if ((u32)id >= x.numExperts)
        return -1;
    return x.plain ? id : replica_of(x, source, token, id);
}
__device__ __forceinline__ u32 rank_of(const Experts &x, u32 g) {
    u32 large = x.more * (x.per + 1);
    return g < large ? quotient(g, x.inverseMore) : x.more + quotient(g - large, x.inversePer);
}
__device__ __forceinline__ int first_of(const Experts &x, u32 rank) { return rank * x.per + min(rank, x.more); }
__device__ __forceinline__ u32 padded(u32 n, u32 alignment) { return (n + alignment - 1) / alignment * alignment; }
__device__ __forceinline__ u32 lanes_below() { return (1u << (threadIdx.x & 31)) - 1; }

// PRIVATE is the words of all warps' counters: with many experts fewer warps count. COUNTERS is the most that do.
#define PRIVATE 8192u
#define COUNTERS 12u
__device__ __forceinline__ u32 counting_warps(u32 columns) { return max(1u, min(COUNTERS, PRIVATE / max(1u, columns))); }

// prefix_warps makes counters [warps][columns] exclusive prefix sums over warps, and sums the totals. A whole block; thread is
// a number for each of its threads.
__device__ void prefix_warps(u32 *counters, u32 *total, u32 warps, u32 columns, u32 thread) {
    for (u32 i = thread; i < columns; i += blockDim.x) {
        u32 sum = 0;
        for (u32 w = 0; w < warps; w++) {
            u32 v = counters[w * columns + i];
            counters[w * columns + i] = sum;
            sum += v;
        }
        total[i] = sum;
    }
}

__device__ __forceinline__ u32 warp_sum_before(u32 v, u32 &all) {
    u32 lane = threadIdx.x & 31, sum = v;
#pragma unroll
    for (u32 i = 1; i < 32; i *= 2) {
        u32 other = __shfl_up_sync(~0u, sum, i);
        if (lane >= i)
            sum += other;
    }
    all = __shfl_sync(~0u, sum, 31);
    return sum - v;
}

// ticket says, to all threads, whether this block is the last one to come here. What the others wrote is then visible to it
// by loads past the L1. It waits for nobody.
__device__ bool ticket(u32 *word, u32 *last) {
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        *last = atomicAdd(word, 1u) == gridDim.x - 1;
        __threadfence();
        if (*last)
            atomicExch(word, 0u); // after all blocks' additions, for the next launch
    }
    __syncthreads();
    return *last;
}

// IndexArgs are the parameters of both index kernels: rows of all ranks in rank order, as an all_gatherv leaves them.
struct IndexArgs {
    Experts experts;
    u64 ids, weights;                                  // [rows, topK]
    u64 rowsOf;                                        // int [numRanks]: rows of each rank
    u64 row, k, weight, slot;                          // out: [slots] and [rows, topK]
    u64 counts, offsets, numRows, dropped, stats;      // out
    u64 ticket, scratch;                               // u32; u32 [blocks, numLocal + 1]
    u32 maxRows, pad;
};

// gathered_rows fills starts with the prefix sums of all ranks' rows, for a whole block.
__device__ void gathered_rows(const IndexArgs &d, int *starts) {
    if (threadIdx.x == 0) {
        int sum = 0;
        for (u32 i = 0; i < d.experts.numRanks; i++) {
            starts[i] = sum;
            int n = ((const int *)d.rowsOf)[i];
            sum += n > 0 ? n : 0;
            sum = sum < (int)d.maxRows ? sum : (int)d.maxRows; // counts that did not fit were reported before
        }
        starts[d.experts.numRanks] = sum;
    }
    __syncthreads();
}

// local_of returns the local expert of choice i, or -1.
__device__ __forceinline__ int local_of(const IndexArgs &d, const int *starts, u32 i) {
    const Experts &x = d.experts;
    int id = ((const int *)d.ids)[i];
    u32 source = 0, row = i / x.topK;
    if (!x.plain)
        while (source + 1 < x.numRanks && (int)row >= starts[source + 1])
            source++;
    int g = place_of(x, source, row - starts[source], id);
    int first = first_of(x, x.rank);
    return g >= first && g < first + (int)x.numLocal ? g - first : -1;
}

__device__ void index_count(const IndexArgs &d, const int *starts, u32 *mine, u32 lo, u32 hi, u32 *bad) {
    const Experts &x = d.experts;
    u32 own = starts[x.rank] * x.topK, end = starts[x.rank + 1] * x.topK;
    for (u32 i = lo; i < hi; i += 32) {
        u32 at = i + (threadIdx.x & 31);
        int l = at < hi ? local_of(d, starts, at) : -1;
        u32 same = __match_any_sync(~0u, l);
        if (l >= 0 && (same & lanes_below()) == 0)
            mine[l] += __popc(same);
        if (bad && at < hi && at >= own && at < end && place_of(x, 0, 0, ((const int *)d.ids)[at]) < 0)
            atomicAdd(bad, 1u);
        __syncwarp();
    }
}

// weft_index_count counts the choices of each block's rows; the last block to be done makes offsets of all counts.
// Launch: any grid of THREADS threads, the same for both kernels. Bytes: ids read once here and once there.
extern "C" __global__ void __launch_bounds__(THREADS, 1) weft_index_count(const __grid_constant__ IndexArgs d) {
    extern __shared__ __align__(128) u32 pool[];
    __shared__ int starts[MAX_RANKS + 1];
    __shared__ u32 last, bad;
    const Experts &x = d.experts;
    follow();
    u32 t = threadIdx.x, columns = x.numLocal, width = columns + 1, warps = counting_warps(width), warp = t / 32;
    u32 *total = pool + warps * width;
    gathered_rows(d, starts);
    for (u32 i = t; i < warps * width; i += blockDim.x)
        pool[i] = 0;
    if (t == 0)
        bad = 0;
    __syncthreads();
    u32 rows = starts[x.numRanks], team = gridDim.x * warps, id = blockIdx.x * warps + warp;
    if (warp < warps)
        index_count(d, starts, pool + warp * width, (u32)((u64)rows * id / team) * x.topK,
                    (u32)((u64)rows * (id + 1) / team) * x.topK, &bad);
    __syncthreads();
    prefix_warps(pool, total, warps, width, t);
    __syncthreads();
    u32 *scratch = (u32 *)d.scratch;
    for (u32 i = t; i < columns; i += blockDim.x)
        scratch[blockIdx.x * width + i] = total[i];
    if (t == 0)
        scratch[blockIdx.x * width + columns] = bad;
    if (!ticket((u32 *)d.ticket, &last))
        return;
    for (u32 i = warp; i < width; i += blockDim.x / 32) {
        u32 sum = 0;
        for (u32 b = 0; b < gridDim.x; b += 32) {
            u32 at = b + (t & 31), all;
            volatile u32 *word = scratch + at * width + i;
            u32 v = at < gridDim.x ? *word : 0;
            u32 before = warp_sum_before(v, all);
            if (at < gridDim.x)
                *word = sum + before;
            sum += all;
        }
        if ((t & 31) == 0)
            total[i] = sum;
    }
    __syncthreads();
    int *counts = (int *)d.counts, *offsets = (int *)d.offsets;
    u64 *stats = (u64 *)d.stats;
    if (warp == 0) {
        u32 sum = 0, slots = 0;
        for (u32 i = 0; i < columns; i += 32) {
            u32 l = i + t, n = l < columns ? total[l] : 0, pad = padded(n, x.alignment), all;
            u32 before = warp_sum_before(pad, all);
            if (l < columns) {
                counts[l] = n;
                counts[columns + l] = pad;
                offsets[l] = sum + before;
                stats[NUM_STATS + l] += n;
            }
            sum += all;
            warp_sum_before(n, all);
            slots += all;
        }
        if (t == 0) {
            u32 own = starts[x.rank + 1] - starts[x.rank];
            offsets[columns] = sum;
            *(int *)d.numRows = rows;
            ((int *)d.dropped)[0] = total[columns];
            ((int *)d.dropped)[1] = 0;
            stats[0] += 1;
            stats[1] += own;
            stats[2] += own * x.numRanks;
            stats[3] += own * (x.numRanks - 1);
            stats[4] += slots;
            stats[5] += total[columns];
        }
    }
}

// weft_index_place writes the index.
extern "C" __global__ void __launch_bounds__(THREADS, 1) weft_index_place(const __grid_constant__ IndexArgs d) {
    extern __shared__ __align__(128) u32 pool[];
    __shared__ int starts[MAX_RANKS + 1];
    const Experts &x = d.experts;
    follow();
    u32 t = threadIdx.x, columns = x.numLocal, width = columns + 1, warps = counting_warps(width), warp = t / 32;
    u32 *total = pool + warps * width;
    gathered_rows(d, starts);
    for (u32 i = t; i < warps * width; i += blockDim.x)
        pool[i] = 0;
    __syncthreads();
    u32 rows = starts[x.numRanks], team = gridDim.x * warps, id = blockIdx.x * warps + warp;
    u32 lo = (u32)((u64)rows * id / team) * x.topK, hi = (u32)((u64)rows * (id + 1) / team) * x.topK;
    u32 *mine = pool + warp * width;
    if (warp < warps)
        index_count(d, starts, mine, lo, hi, 0);
    __syncthreads();
    prefix_warps(pool, total, warps, width, t);
    const int *counts = (const int *)d.counts, *offsets = (const int *)d.offsets;
    const u32 *scratch = (const u32 *)d.scratch + blockIdx.x * width;
    int *row = (int *)d.row, *ks = (int *)d.k, *slot = (int *)d.slot;
    float *weight = (float *)d.weight;
    for (u32 l = blockIdx.x; l < columns; l += gridDim.x)
        for (u32 i = counts[l] + t; i < (u32)counts[columns + l]; i += blockDim.x) {
            row[offsets[l] + i] = ks[offsets[l] + i] = -1;
            weight[offsets[l] + i] = 0;
        }
    __syncthreads();
    if (warp >= warps)
        return;
    for (u32 i = lo; i < hi; i += 32) {
        u32 at = i + (t & 31);
        int l = at < hi ? local_of(d, starts, at) : -1;
        u32 same = __match_any_sync(~0u, l), before = l >= 0 ? mine[l] : 0;
        __syncwarp();
        if (l >= 0) {
            int s = offsets[l] + scratch[l] + before + __popc(same & lanes_below());
            row[s] = at / x.topK;
            ks[s] = at % x.topK;
            weight[s] = ((const float *)d.weights)[at];
            slot[at] = s;
            if ((same & lanes_below()) == 0)
                mine[l] = before + __popc(same);
        } else if (at < hi) {
            slot[at] = -1;
        }
        __syncwarp();
    }
}

// ExpandArgs are the parameters of weft_expand: row row[s] of src, of bytes bytes, becomes row s of dst.
struct ExpandArgs {
    u64 dst, src, row, offsets; // offsets [numLocal + 1]: the last is the number of slots
    u64 bytes;
    u32 numLocal, pad;
};

// weft_expand makes one copy for each slot, zeros in padding. A warp for each slot; it waits for nobody.
extern "C" __global__ void __launch_bounds__(THREADS, 1) weft_expand(const __grid_constant__ ExpandArgs d) {
    follow();
    u32 slots = ((const int *)d.offsets)[d.numLocal], lane = threadIdx.x & 31;
    bool vector = ((d.dst | d.src | d.bytes) & 15) == 0;
    for (u64 s = (blockIdx.x * blockDim.x + threadIdx.x) / 32; s < slots; s += gridDim.x * (blockDim.x / 32)) {
        int row = ((const int *)d.row)[s];
        u8 *to = (u8 *)d.dst + s * d.bytes;
        const u8 *from = (const u8 *)d.src + (i64)row * d.bytes;
        if (vector)
            for (u32 i = lane; i < d.bytes / 16; i += 32)
                ((uint4 *)to)[i] = row < 0 ? make_uint4(0, 0, 0, 0) : load_stream((const uint4 *)from + i);
        else
            for (u32 i = lane; i < d.bytes; i += 32)
                to[i] = row < 0 ? 0 : from[i];
    }
}
