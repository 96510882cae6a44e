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

enum { EXPANDED = 1, INVERSE = 2, INVARIANT = 4, CLIP = 8, REFUSE = 16, TERMS = 32 };

// SOLO is the tokens up to which every block counts all of them, so that no block waits for another one's count.
#define SOLO 256u

// Exchange is what stays the same for an exchanger's life. Offsets are from each rank's base.
struct Exchange {
    Experts experts;
    u64 peers[MAX_RANKS]; // each rank's region
    u64 tally;            // offset: Line [2][numRanks][ceil(numPhysical / 2)]
    u64 scratch;          // u32: ticket; from 8: own [MAX_RANKS]; then masks [maxTokens], counts [blocks, columns]
    u64 stats;            // u64 [NUM_STATS + numLocal]
    u32 hidden, maxTokens, maxRecv, fan; // fan: places of a token's list of rows, min(numRanks, topK)
};

// Bank is one result's memory. The first six are offsets, the others this rank's addresses.
struct Bank {
    u64 x, scales, row, k, weight, slot;
    u64 counts, offsets, numRows, dropped, numTokens;
    u64 terms, rows; // Term [maxTokens, topK], Sent [maxTokens, fan]
};

// Term is an expert row that comes back to a token: of which rank, where, and its weight. Rank -1 ends a token's list.
struct __align__(16) Term {
    int slot, rank;
    float weight;
    int k;
};

// Sent is a row of a token at a rank.
struct __align__(8) Sent {
    int row, rank;
};

struct DispatchArgs {
    Args meet;
    Exchange ex;
    Bank bank;
    u64 src, ids, weights, numTokens; // numTokens: int on the device, or 0
    i64 srcStride;                    // bytes
    u32 tokens, rowBytes, dtype, fp8, flags, spread; // rowBytes: on the wire
    u64 pad;
};

// Route is a block's view of one dispatch.
struct Route {
    u32 lo, hi;   // its tokens for counting
    u32 first, step; // its tokens for pushing: first, first + step, ...
    u32 tokens, warps, last;
    int keep[MAX_RANKS], base[MAX_RANKS]; // rows of this rank that go to each, and their first place there
    int chunk[MAX_RANKS];                 // rows of earlier blocks
    int recv, why, dropped, fullest;
    u32 *masks;       // [tokens]: the ranks of each; the block's own when they are few
    u32 few[SOLO];
};

__device__ __forceinline__ u32 *own_counts(const Exchange &x) { return (u32 *)x.scratch + 8; }
__device__ __forceinline__ u32 *masks_of(const Exchange &x) { return (u32 *)x.scratch + 8 + MAX_RANKS; }
__device__ __forceinline__ u32 *block_counts(const Exchange &x, u32 columns) {
    return masks_of(x) + (x.maxTokens + 7) / 8 * 8 + blockIdx.x * columns;
}

// warp_tokens is the part of the block's tokens that a counting warp walks.
__device__ __forceinline__ void warp_tokens(const Route &r, u32 warp, u32 &lo, u32 &hi) {
    u32 n = r.hi - r.lo;
    lo = r.lo + n * warp / r.warps;
    hi = r.lo + n * (warp + 1) / r.warps;
}

// count_rows counts a warp's rows for each rank, notes each token's ranks and counts ids that are none.
__device__ void count_rows(const DispatchArgs &d, const Route &r, u32 *mine) {
    const Experts &x = d.ex.experts;
    u32 lane = threadIdx.x & 31, lo, hi, count = 0, bad = 0;
    warp_tokens(r, threadIdx.x / 32, lo, hi);
    const int *ids = (const int *)d.ids;
    for (u32 t = lo; t < hi; t += 32) {
        u32 token = t + lane, mask = 0;
        if (token < hi) {
            for (u32 k = 0; k < x.topK; k++) {
                int g = place_of(x, x.rank, token, ids[(u64)token * x.topK + k]);
                if (g < 0)
                    bad++;
                else
                    mask |= 1u << rank_of(x, g);
            }
            r.masks[token] = mask;
        }
        for (u32 i = 0; i < x.numRanks; i++) {
            u32 n = __popc(__ballot_sync(~0u, mask >> i & 1));
            if (lane == i)
                count += n;
        }
    }
    if (lane < x.numRanks)
        mine[lane] = count;
    u32 all;
    warp_sum_before(bad, all);
    if (lane == 0)
        mine[x.numRanks] = all;
    __syncwarp();
}

// choice_of returns the expert of choice i of this rank's tokens, or -1 when it goes nowhere.
__device__ __forceinline__ int choice_of(const DispatchArgs &d, const Route &r, u32 i, u32 &rank) {
    const Experts &x = d.ex.experts;
    u32 token = i / x.topK;
    int g = place_of(x, x.rank, token, ((const int *)d.ids)[i]);
    if (g >= 0) {
        rank = rank_of(x, g);
        if (!(r.masks[token] >> rank & 1))
            g = -1;
    }
    return g;
}

__device__ void count_choices(const DispatchArgs &d, const Route &r, u32 *mine) {
    u32 lane = threadIdx.x & 31, lo, hi, topK = d.ex.experts.topK;
    warp_tokens(r, threadIdx.x / 32, lo, hi);
    for (u32 i = lo * topK; i < hi * topK; i += 32) {
        u32 rank;
        int g = i + lane < hi * topK ? choice_of(d, r, i + lane, rank) : -1;
        u32 same = __match_any_sync(~0u, g);
        if (g >= 0 && (same & lanes_below()) == 0)
            mine[g] += __popc(same);
        __syncwarp();
    }
}

// gather_blocks makes the rank's totals of each block's columns [first, first + columns), and leaves in their place the sums
// of earlier blocks. It returns, to the last block alone, true.
__device__ bool gather_blocks(const DispatchArgs &d, Route &r, u32 *total, u32 first, u32 columns, u32 width) {
    u32 *scratch = block_counts(d.ex, width) - blockIdx.x * width + first;
    for (u32 i = threadIdx.x; i < columns; i += blockDim.x)
        scratch[blockIdx.x * width + i] = total[i];
    if (!ticket((u32 *)d.ex.scratch, &r.last))
        return false;
    for (u32 i = threadIdx.x; i < columns; i += blockDim.x) {
        u32 sum = 0;
        for (u32 b = 0; b < gridDim.x; b += 8) {
            u32 v[8];
#pragma unroll
            for (u32 j = 0; j < 8; j++)
                v[j] = b + j < gridDim.x ? *(volatile u32 *)(scratch + (b + j) * width + i) : 0;
#pragma unroll
            for (u32 j = 0; j < 8; j++) {
                if (b + j < gridDim.x)
                    *(volatile u32 *)(scratch + (b + j) * width + i) = sum;
                sum += v[j];
            }
        }
        total[i] = sum;
    }
    __threadfence(); // blocks that see this rank's lines see these sums
    __syncthreads();
    return true;
}

// speak writes choices per expert to all ranks. One block.
__device__ void speak(const DispatchArgs &d, const u32 *total, u64 e) {
    const Experts &x = d.ex.experts;
    u32 lines = (x.numPhysical + 1) / 2;
    for (u32 i = threadIdx.x; i < x.numRanks * lines; i += blockDim.x) {
        u32 p = i / lines, w = i - p * lines;
        Line *to = (Line *)(d.ex.peers[p] + d.ex.tally) + ((e & 1) * x.numRanks + x.rank) * lines + w;
        line_store(to, total[2 * w], 2 * w + 1 < x.numPhysical ? total[2 * w + 1] : 0, (u32)e);
    }
}

// listen waits for everyone's choices per expert: total, and before, of the ranks in front of this one. It returns why it
// gave up to each thread.
__device__ u32 listen(const DispatchArgs &d, u32 *total, u32 *before, u64 e, u32 &from) {
    const Experts &x = d.ex.experts;
    Ctl *c = d.meet.ctl;
    u32 lines = (x.numPhysical + 1) / 2;
    const Line *mine = (const Line *)(d.ex.peers[x.rank] + d.ex.tally) + (e & 1) * x.numRanks * lines;
    for (u32 i = threadIdx.x; i < x.numRanks * lines; i += blockDim.x) {
        u32 p = i / lines, w = i - p * lines, why;
        Patience wait = {};
        Line v;
        while (v = line_load(mine + i), v.flagA != (u32)e || v.flagB != (u32)e)
            if ((why = impatient(c, wait, p, e, d.meet.entry.signature)) != 0) {
                from = p;
                return why;
            }
        u32 n[2] = {v.a, v.b};
#pragma unroll
        for (u32 j = 0; j < 2; j++)
            if (n[j] != 0) {
                atomicAdd(total + 2 * w + j, n[j]);
                if (p < x.rank)
                    atomicAdd(before + 2 * w + j, n[j]);
            }
    }
    return 0;
}

// Why nothing is sent, beside the reasons of Record that protocol.cuh names.
enum { REFUSED = 13, OVERFLOWS = 14, BAD_TOKENS = 15 };

// matrix decides from everyone's rows, alike on all ranks, what goes where. A whole block.
__device__ void matrix(const DispatchArgs &d, const Shared &sh, Route &r) {
    const Experts &x = d.ex.experts;
    u32 t = threadIdx.x;
    if (t < MAX_RANKS) { // one warp
        int sum = 0, left = d.ex.maxRecv, base = 0, keep = 0, sent = 0;
        bool refused = t < x.numRanks && sh.entries[t].send[0] < 0;
        u32 who = __ballot_sync(~0u, refused);
        for (u32 i = 0; t < x.numRanks && i < x.numRanks && who == 0; i++) {
            int n = sh.entries[i].send[t];
            sum += n;
            int kept = d.flags & CLIP && n > left ? left : n;
            left -= kept;
            if (i < x.rank)
                base += kept;
            if (i == x.rank) {
                keep = kept;
                sent = n;
            }
        }
        r.base[t] = base;
        r.keep[t] = keep;
        int dropped = sent - keep, most = sum, at = t;
        for (int i = 16; i > 0; i /= 2) {
            dropped += __shfl_xor_sync(~0u, dropped, i);
            int other = __shfl_xor_sync(~0u, most, i), where = __shfl_xor_sync(~0u, at, i);
            if (other > most || (other == most && where < at)) {
                most = other;
                at = where;
            }
        }
        if (t == x.rank)
            r.recv = d.flags & CLIP && sum > (int)d.ex.maxRecv ? d.ex.maxRecv : sum;
        if (t == 0) {
            r.dropped = dropped;
            r.why = 0;
            r.fullest = at;
            if (who != 0) {
                r.why = REFUSED;
                r.fullest = __ffs(who) - 1;
            } else if (!(d.flags & CLIP) && most > (int)d.ex.maxRecv) {
                r.why = OVERFLOWS;
                r.last = most;
            }
        }
    }
    __syncthreads();
}

// place_experts makes each expert's first slot on its rank, and where this rank's choices go after those of earlier ranks.
__device__ void place_experts(const Experts &x, const u32 *total, u32 *offset, u32 *numSlots) {
    u32 warp = threadIdx.x / 32, lane = threadIdx.x & 31;
    for (u32 r = warp; r < x.numRanks; r += blockDim.x / 32) {
        u32 lo = first_of(x, r), hi = first_of(x, r + 1), sum = 0;
        for (u32 i = lo; i < hi; i += 32) {
            u32 g = i + lane, all;
            u32 before = warp_sum_before(g < hi ? padded(total[g], x.alignment) : 0, all);
            if (g < hi)
                offset[g] = sum + before;
            sum += all;
        }
        if (r == x.rank && lane == 0)
            *numSlots = sum;
    }
}

// place_rows gives each of the warp's tokens its row at every rank, in order, and takes from its ranks those without room.
__device__ void place_rows(const DispatchArgs &d, const Route &r, const u32 *mine, bool solo) {
    const Experts &x = d.ex.experts;
    u32 lane = threadIdx.x & 31, lo, hi, fan = d.ex.fan;
    warp_tokens(r, threadIdx.x / 32, lo, hi);
    u32 count = lane < x.numRanks ? r.chunk[lane] + mine[lane] : 0;
    Sent *sent = (Sent *)d.bank.rows;
    for (u32 t = lo; t < hi; t += 32) {
        u32 token = t + lane, n = 0;
        u32 mask = token < hi ? r.masks[token] : 0, keep = mask;
        bool writes = token < hi && (!solo || token % gridDim.x == blockIdx.x);
        for (u32 i = 0; i < x.numRanks; i++) {
            u32 with = __ballot_sync(~0u, mask >> i & 1), before = __shfl_sync(~0u, count, i);
            if (mask >> i & 1) {
                int at = before + __popc(with & lanes_below());
                if (at < r.keep[i]) {
                    if (writes)
                        sent[(u64)token * fan + n] = Sent{r.base[i] + at, (int)i};
                    n++;
                } else {
                    keep &= ~(1u << i);
                }
            }
            if (lane == i)
                count += __popc(with);
        }
        if (writes && n < fan)
            sent[(u64)token * fan + n] = Sent{-1, -1};
        if (keep != mask)
            r.masks[token] = keep;
    }
    __syncwarp();
}

// place_choices writes the warp's entries of everyone's index, and the list of what comes back to each token.
__device__ void place_choices(const DispatchArgs &d, const Route &r, u32 *mine, const u32 *slotBase, bool solo) {
    const Experts &x = d.ex.experts;
    const Exchange &ex = d.ex;
    u32 lane = threadIdx.x & 31, lo, hi, topK = x.topK;
    warp_tokens(r, threadIdx.x / 32, lo, hi);
    const Sent *sent = (const Sent *)d.bank.rows;
    bool groups = 32 % topK == 0;
    for (u32 i = lo * topK; i < hi * topK; i += 32) {
        u32 at = i + lane, rank = MAX_RANKS, token = at / topK, k = at - token * topK;
        bool there = at < hi * topK;
        int g = there ? choice_of(d, r, at, rank) : -1;
        if (g < 0)
            rank = MAX_RANKS;
        u32 same = __match_any_sync(~0u, g);
        u32 slot = 0;
        if (g >= 0)
            slot = slotBase[g] + mine[g] + __popc(same & lanes_below());
        __syncwarp();
        if (g >= 0 && (same & lanes_below()) == 0)
            mine[g] += __popc(same);
        bool writes = there && (!solo || token % gridDim.x == blockIdx.x);
        // Its place among the token's choices, by rank and k (INVARIANT: by k); those that go nowhere are last.
        u32 place = 0;
        if (d.flags & TERMS) {
            u32 key = d.flags & INVARIANT && g >= 0 ? 0 : rank;
            for (u32 j = 0; j < topK; j++) {
                u32 other = MAX_RANKS;
                if (groups)
                    other = __shfl_sync(~0u, key, (lane & ~(topK - 1)) + j);
                else if (there) {
                    u32 r2 = MAX_RANKS;
                    int g2 = choice_of(d, r, token * topK + j, r2);
                    other = g2 < 0 ? MAX_RANKS : d.flags & INVARIANT ? 0 : r2;
                }
                place += other < key || (other == key && j < k);
            }
        }
        float weight = there ? ((const float *)d.weights)[at] : 0;
        if (writes && d.flags & TERMS)
            ((Term *)d.bank.terms)[(u64)token * topK + place] = Term{(int)slot, g >= 0 ? (int)rank : -1, weight, (int)k};
        if (writes) {
            u32 mask = r.masks[token];
            if (g >= 0) {
                u64 base = ex.peers[rank];
                ((int *)(base + d.bank.row))[slot] = sent[(u64)token * ex.fan + __popc(mask & ((1u << rank) - 1))].row;
                ((int *)(base + d.bank.k))[slot] = k;
                ((float *)(base + d.bank.weight))[slot] = weight;
            }
            if (d.flags & INVERSE)
                for (u32 j = 0; mask != 0; j++, mask &= mask - 1) {
                    u32 to = __ffs(mask) - 1;
                    int *inverse = (int *)(ex.peers[to] + d.bank.slot);
                    inverse[(u64)sent[(u64)token * ex.fan + j].row * topK + k] = g >= 0 && to == rank ? (int)slot : -1;
                }
        }
        __syncwarp();
    }
}

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
