// Where a dispatch's rows and choices go: counting, the exchange of counts, places. See dispatch.cu.

enum { EXPANDED = 1, INVERSE = 2, INVARIANT = 4, CLIP = 8, REFUSE = 16, TERMS = 32 };

// SOLO is the tokens up to which every block counts all of them, so that no block waits for another one's count.
#define SOLO 256u

// FEW_SENT is the rows of a block's few tokens that are kept in shared memory too.
#define FEW_SENT 512u

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
    u32 tokens, rowBytes, dtype, fp8, flags, scaleBytes; // rowBytes: on the wire; scaleBytes: of a row's scales there
    u64 bulk;        // where in shared memory bulk copies go, or 0
    u64 scales;      // the caller's own, of rows that it quantised: as opaque as the rows
    i64 scaleStride; // bytes
    u64 pad;
};

// Route is a block's view of one dispatch.
struct Route {
    u32 lo, hi;   // its tokens for counting
    u32 first, step; // its tokens for pushing: first, first + step, ...
    u32 tokens, warps, last;
    int keep[MAX_RANKS], base[MAX_RANKS]; // rows of this rank that go to each, and their first place there
    int chunk[MAX_RANKS];                 // rows of earlier blocks
    int recv, why, dropped, fullest, gone;
    u32 numSlots;
    u32 *masks;       // [tokens]: the ranks of each; the block's own when they are few
    u32 few[SOLO];
    u32 local;              // the block's own tokens' rows are in sent, besides the bank's
    Sent sent[FEW_SENT];
};

__device__ __forceinline__ u32 *own_counts(const Exchange &x) { return (u32 *)x.scratch + 8; }
__device__ __forceinline__ u32 *masks_of(const Exchange &x) { return (u32 *)x.scratch + 8 + MAX_RANKS; }
__device__ __forceinline__ u32 *block_counts(const Exchange &x, u32 columns) {
    return masks_of(x) + (x.maxTokens + 7) / 8 * 8 + blockIdx.x * columns;
}

// sent_of is the list of a token of this block's for which it has written it.
__device__ __forceinline__ const Sent *sent_of(const DispatchArgs &d, const Route &r, u32 token) {
    return r.local ? r.sent + token / gridDim.x * d.ex.fan : (const Sent *)d.bank.rows + (u64)token * d.ex.fan;
}

// warp_tokens is the part of the block's tokens that a counting warp walks.
__device__ __forceinline__ void warp_tokens(const Route &r, u32 warp, u32 &lo, u32 &hi) {
    u32 n = r.hi - r.lo;
    lo = r.lo + n * warp / r.warps;
    hi = r.lo + n * (warp + 1) / r.warps;
}

// count_rows counts a warp's rows for each rank, notes each token's ranks and counts ids that are none.
__device__ __noinline__ void count_rows(const DispatchArgs &d, const Route &r, u32 *mine) {
    const Experts &x = d.ex.experts;
    u32 lane = threadIdx.x & 31, lo, hi, count = 0, bad = 0;
    warp_tokens(r, threadIdx.x / 32, lo, hi);
    const int *ids = (const int *)d.ids;
    for (u32 t = lo; t < hi; t += 32) {
        u32 token = t + lane, mask = 0;
        if (token < hi) {
            for (u32 k = 0; k < x.topK; k += 8) {
                int id[8];
#pragma unroll
                for (u32 j = 0; j < 8; j++)
                    id[j] = k + j < x.topK ? ids[(u64)token * x.topK + k + j] : -1;
#pragma unroll
                for (u32 j = 0; j < 8; j++) {
                    int g = place_of(x, x.rank, token, id[j]);
                    if (g >= 0)
                        mask |= 1u << rank_of(x, g);
                    bad += g < 0 && k + j < x.topK;
                }
            }
            r.masks[token] = mask;
        }
#pragma unroll 1
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
    u32 token = quotient(i, x.inverseTopK);
    int g = place_of(x, x.rank, token, ((const int *)d.ids)[i]);
    if (g >= 0) {
        rank = rank_of(x, g);
        if (!(r.masks[token] >> rank & 1))
            g = -1;
    }
    return g;
}

__device__ __noinline__ void count_choices(const DispatchArgs &d, const Route &r, u32 *mine) {
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
__device__ __noinline__ bool gather_blocks(const DispatchArgs &d, Route &r, u32 *total, u32 first, u32 columns, u32 width) {
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
__device__ __noinline__ void speak(const DispatchArgs &d, const u32 *total, u64 e) {
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
__device__ __noinline__ u32 listen(const DispatchArgs &d, u32 *total, u32 *before, u64 e, u32 &from, u32 threads) {
    const Experts &x = d.ex.experts;
    Ctl *c = d.meet.ctl;
    u32 lines = (x.numPhysical + 1) / 2;
    const Line *mine = (const Line *)(d.ex.peers[x.rank] + d.ex.tally) + (e & 1) * x.numRanks * lines;
    for (u32 i = threadIdx.x; i < x.numRanks * lines; i += threads) {
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
__device__ __noinline__ void matrix(const DispatchArgs &d, const Shared &sh, Route &r) {
    const Experts &x = d.ex.experts;
    u32 t = threadIdx.x;
    if (t < MAX_RANKS) { // one warp
        int sum = 0, left = d.ex.maxRecv, base = 0, keep = 0, sent = 0;
        bool refused = t < x.numRanks && sh.entries[t].send[0] < 0;
        u32 who = __ballot_sync(~0u, refused);
#pragma unroll 1
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
__device__ __noinline__ void place_experts(const Experts &x, const u32 *total, u32 *offset, u32 *numSlots, u32 threads) {
    u32 warp = threadIdx.x / 32, lane = threadIdx.x & 31;
    for (u32 r = warp; r < x.numRanks; r += threads / 32) {
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
__device__ __noinline__ void place_rows(const DispatchArgs &d, Route &r, const u32 *mine, bool solo) {
    const Experts &x = d.ex.experts;
    u32 lane = threadIdx.x & 31, lo, hi, fan = d.ex.fan;
    warp_tokens(r, threadIdx.x / 32, lo, hi);
    u32 count = lane < x.numRanks ? r.chunk[lane] + mine[lane] : 0;
    Sent *sent = (Sent *)d.bank.rows;
    for (u32 t = lo; t < hi; t += 32) {
        u32 token = t + lane, n = 0;
        u32 mask = token < hi ? r.masks[token] : 0, keep = mask;
        bool writes = token < hi && (!solo || token % gridDim.x == blockIdx.x);
#pragma unroll 1
        for (u32 i = 0; i < x.numRanks; i++) {
            u32 with = __ballot_sync(~0u, mask >> i & 1), before = __shfl_sync(~0u, count, i);
            if (mask >> i & 1) {
                int at = before + __popc(with & lanes_below());
                if (at < r.keep[i]) {
                    if (writes) {
                        sent[(u64)token * fan + n] = Sent{r.base[i] + at, (int)i};
                        if (r.local)
                            r.sent[token / gridDim.x * fan + n] = Sent{r.base[i] + at, (int)i};
                    }
                    n++;
                } else {
                    keep &= ~(1u << i);
                }
            }
            if (lane == i)
                count += __popc(with);
        }
        if (writes && n < fan) {
            sent[(u64)token * fan + n] = Sent{-1, -1};
            if (r.local)
                r.sent[token / gridDim.x * fan + n] = Sent{-1, -1};
        }
        if (keep != mask)
            r.masks[token] = keep;
    }
    __syncwarp();
}

// place_choices writes the warp's entries of everyone's index, and the list of what comes back to each token.
__device__ __noinline__ void place_choices(const DispatchArgs &d, const Route &r, u32 *mine, const u32 *slotBase, bool solo) {
    const Experts &x = d.ex.experts;
    const Exchange &ex = d.ex;
    u32 lane = threadIdx.x & 31, lo, hi, topK = x.topK;
    warp_tokens(r, threadIdx.x / 32, lo, hi);
    bool groups = 32 % topK == 0;
    for (u32 i = lo * topK; i < hi * topK; i += 32) {
        u32 at = i + lane, rank = MAX_RANKS, token = quotient(at, x.inverseTopK), k = at - token * topK;
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
#pragma unroll 1
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
                ((int *)(base + d.bank.row))[slot] = sent_of(d, r, token)[__popc(mask & ((1u << rank) - 1))].row;
                ((int *)(base + d.bank.k))[slot] = k;
                ((float *)(base + d.bank.weight))[slot] = weight;
            }
            if (d.flags & INVERSE)
                for (u32 j = 0; mask != 0; j++, mask &= mask - 1) {
                    u32 to = __ffs(mask) - 1;
                    int *inverse = (int *)(ex.peers[to] + d.bank.slot);
                    inverse[(u64)sent_of(d, r, token)[j].row * topK + k] = g >= 0 && to == rank ? (int)slot : -1;
                }
        }
        __syncwarp();
    }
}
