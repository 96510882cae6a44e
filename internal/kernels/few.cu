// Dispatch of few tokens: what weft_dispatch does, word for word the same for its peers, in less code. A thread is a choice;
// its order among those of the same expert is found by looking at all choices before it, and a lane is a token where rows
// are counted. A rank takes this kernel when its call has room for at most FEW_TOKENS rows and FEW_CHOICES choices.

#define FEW_TOKENS 32u
#define FEW_CHOICES 256u
#define FEW_EXPERTS 512u

// Few is a block's tables.
struct Few {
    int expert[FEW_CHOICES];
    u8 rank[FEW_CHOICES];
    u8 before[FEW_TOKENS * MAX_RANKS]; // rows of earlier tokens at each rank
    u32 total[MAX_RANKS + 1 + FEW_EXPERTS]; // rows for each rank, ids that are none, choices of each expert
    u32 sum[FEW_EXPERTS], base[FEW_EXPERTS], offset[FEW_EXPERTS];
};

// few_order returns how many choices before i are of the same expert.
__device__ u32 few_order(const Few &f, u32 i) {
    int mine = f.expert[i];
    u32 n = 0;
    const int4 *four = (const int4 *)f.expert;
#pragma unroll 4
    for (u32 j = 0; j < i / 4; j++) {
        int4 v = four[j];
        n += (v.x == mine) + (v.y == mine) + (v.z == mine) + (v.w == mine);
    }
    for (u32 j = i & ~3u; j < i; j++)
        n += f.expert[j] == mine;
    return n;
}

// few_total returns how many choices are of expert g. Those behind the last choice are of none.
__device__ u32 few_total(const Few &f, int g, u32 choices) {
    u32 n = 0;
    const int4 *four = (const int4 *)f.expert;
#pragma unroll 4
    for (u32 j = 0; j < (choices + 3) / 4; j++) {
        int4 v = four[j];
        n += (v.x == g) + (v.y == g) + (v.z == g) + (v.w == g);
    }
    return n;
}

// few_rows counts rows for each rank: lane t is token t. One warp.
__device__ void few_rows(const DispatchArgs &d, const Route &r, Few &f) {
    u32 lane = threadIdx.x, mask = lane < r.tokens ? r.few[lane] : 0;
#pragma unroll 1
    for (u32 i = 0; i < d.ex.experts.numRanks; i++) {
        u32 with = __ballot_sync(~0u, mask >> i & 1);
        f.before[lane * MAX_RANKS + i] = __popc(with & lanes_below());
        if (lane == 0)
            f.total[i] = __popc(with);
    }
}

// few_sent lists the block's own tokens' rows, for pushing and for the way back. One warp.
__device__ void few_sent(const DispatchArgs &d, Route &r, const Few &f) {
    u32 token = threadIdx.x, fan = d.ex.fan, n = 0;
    if (token >= r.tokens || token % gridDim.x != blockIdx.x)
        return;
    Sent *all = (Sent *)d.bank.rows + token * fan, *own = r.sent + token / gridDim.x * fan;
    for (u32 mask = r.few[token]; mask != 0; mask &= mask - 1, n++) {
        u32 i = __ffs(mask) - 1;
        all[n] = own[n] = Sent{r.base[i] + f.before[token * MAX_RANKS + i], (int)i};
    }
    if (n < fan)
        all[n] = own[n] = Sent{-1, -1};
}

// few_place writes choice t's entries of its expert's rank's index, and its place on the way back.
__device__ void few_place(const DispatchArgs &d, const Route &r, const Few &f, u32 order, float weight) {
    const Experts &x = d.ex.experts;
    u32 t = threadIdx.x, topK = x.topK, token = quotient(t, x.inverseTopK), k = t - token * topK, rank = f.rank[t];
    if (token % gridDim.x != blockIdx.x)
        return;
    int g = f.expert[t], slot = g >= 0 ? f.base[g] + order : 0;
    if (d.flags & TERMS) {
        u32 place = 0, key = d.flags & INVARIANT && g >= 0 ? 0 : rank;
        for (u32 j = 0; j < topK; j++) {
            u32 other = f.rank[token * topK + j];
            if (d.flags & INVARIANT && other < MAX_RANKS)
                other = 0;
            place += other < key || (other == key && j < k);
        }
        ((Term *)d.bank.terms)[token * topK + place] = Term{slot, g >= 0 ? (int)rank : -1, weight, (int)k};
    }
    if (g >= 0) {
        u64 base = d.ex.peers[rank];
        ((int *)(base + d.bank.row))[slot] = r.base[rank] + f.before[token * MAX_RANKS + rank];
        ((int *)(base + d.bank.k))[slot] = k;
        ((float *)(base + d.bank.weight))[slot] = weight;
    }
    if (d.flags & INVERSE)
        for (u32 mask = r.few[token]; mask != 0; mask &= mask - 1) {
            u32 to = __ffs(mask) - 1;
            u64 row = r.base[to] + f.before[token * MAX_RANKS + to];
            ((int *)(d.ex.peers[to] + d.bank.slot))[row * topK + k] = g >= 0 && to == rank ? slot : -1;
        }
}

// weft_dispatch_few: see above. Launch: as weft_dispatch, without dynamic shared memory; blocks x FEW_SENT / fan tokens fit.
extern "C" __global__ void __launch_bounds__(THREADS, 1) weft_dispatch_few(const __grid_constant__ DispatchArgs d) {
    __shared__ Shared sh;
    __shared__ Route r;
    __shared__ __align__(16) Few f;
    const Experts &x = d.ex.experts;
    const Args &a = d.meet;
    follow();
    STAMP(d.ex.stats, x, 0);
    u32 t = threadIdx.x, experts = x.numPhysical;
    bool has = t < d.tokens * x.topK;
    int id = has ? ((const int *)d.ids)[t] : -1; // on their way while the block begins
    float weight = has ? ((const float *)d.weights)[t] : 0;
    u64 e = next_epoch(a);
    start(d, r, experts);
    u32 refused = r.why, given = r.fullest, choices = r.tokens * x.topK, token = quotient(t, x.inverseTopK);
    int g = t < choices ? place_of(x, x.rank, token, id) : -1;
    if (t < FEW_CHOICES) {
        f.expert[t] = g;
        f.rank[t] = g >= 0 ? rank_of(x, g) : MAX_RANKS;
    }
    if (t < FEW_TOKENS)
        r.few[t] = 0;
    for (u32 i = t; i < experts; i += blockDim.x)
        f.sum[i] = f.base[i] = 0;
    __syncthreads();
    if (g >= 0)
        atomicOr(&r.few[token], 1u << f.rank[t]);
    u32 bad = __syncthreads_count(t < choices && g < 0);
    Tables b = {};
    b.total = f.total;
    b.experts = f.total + x.numRanks + 1;
    b.offset = f.offset;
    if (t < 32)
        few_rows(d, r, f);
    for (u32 i = t; i < experts; i += blockDim.x)
        b.experts[i] = few_total(f, i, choices);
    u32 order = g >= 0 ? few_order(f, t) : 0;
    __syncthreads();
    STAMP(d.ex.stats, x, 1);
    bool speaks = blockIdx.x == 0;
    if (speaks) {
        if (t < MAX_RANKS)
            own_counts(d.ex)[t] = refused ? ~0u : t < x.numRanks ? f.total[t] : 0;
        speak(d, b.experts, e);
    }
    __syncthreads();
    STAMP(d.ex.stats, x, 2);
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
    if (t < 32)
        few_sent(d, r, f);
    STAMP(d.ex.stats, x, 4);
    u32 from = 0, why = listen(d, f.sum, f.base, e, from, blockDim.x);
    if (__syncthreads_or(why)) {
        gave_up(a.ctl, a, sh, why, from, e, 0, 0);
        abandon(a, sh);
        if (speaks)
            conclude(d, r, f.sum, f.offset, 0, true, blockDim.x);
        return;
    }
    place_experts(x, f.sum, f.offset, &r.numSlots, blockDim.x);
    __syncthreads();
    for (u32 i = t; i < experts; i += blockDim.x)
        f.base[i] += f.offset[i];
    __syncthreads();
    STAMP(d.ex.stats, x, 5);
    if (t < choices)
        few_place(d, r, f, order, weight);
    pad(d, f.sum, f.offset, blockDim.x);
    if (speaks)
        conclude(d, r, f.sum, f.offset, bad, false, blockDim.x);
    STAMP(d.ex.stats, x, 6);
    __syncthreads();
    push_rows(d, r, 0, 0);
    push_scales(d, r);
    STAMP(d.ex.stats, x, 7);
    finish(a, sh, false);
    STAMP(d.ex.stats, x, 8);
}
