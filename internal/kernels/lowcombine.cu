// Combine of few tokens: rows are pushed to fixed places at their source; see lowlatency.cuh. Both halves are one kernel.
//
// A row travels in pieces, each with a flag of its own: the source's warp that adds up a piece waits for that piece of each rank
// alone. Launch: up to the rank's blocks of THREADS threads, all resident. Bytes: expert rows read, partial rows written and
// read, sums written: N r (1 + topK + 2 D). Floor: one way of a flag behind the way of the rows. Tested as lowdispatch.cu is.

// low_place is row i of those received: its number, and its source.
__device__ __forceinline__ u32 low_place(const LowCombineArgs &p, const LowBlock &lb, u32 i, u32 &src) {
    src = 0;
    while (i >= lb.rows[src + 1])
        src++;
    return src * p.ex.maxTokens + i - lb.rows[src];
}

// low_piece makes units [lo, hi) of a row that goes back: of one row of y, or of the sum of the row's experts.
template <class N, class V> __device__ __forceinline__ void low_piece(u64 to, u64 from, float weight, u32 n, bool sums, u32 lo, u32 hi) {
    const Target target = {to, {}, 0, {}, 0};
    if (sums)
        Sum<N, INVARIANT_SUM, V>{target, from, weight, 0, n, 0, hi}.template run<1>(lo);
    else
        Sum<N, PARTIALS, V>{target, from, weight, 0, n, 0, hi}.template run<1>(lo);
}

// low_return pushes what this rank has of each received row to the row's source.
template <class N> __device__ __noinline__ void low_return(const LowCombineArgs &p, const LowBlock &lb) {
    const u32 size = sizeof(typename N::Raw), topK = p.c.topK, each = p.c.mode == INVARIANT_SUM ? topK : 1;
    const Low &w = p.low;
    u32 lane = threadIdx.x & 31, me = p.ex.experts.rank, warps = gridDim.x * (blockDim.x / 32);
    bool vector = ((p.y | (u64)p.yStride | (u64)p.c.hidden * size) & 15) == 0;
    u32 unit = vector ? 16 / size : 1, units = p.c.hidden / unit, step = w.step / unit;
    const Line *notes = (const Line *)(p.ex.peers[me] + w.notes);
    u32 end = lb.rows[p.ex.experts.numRanks] * each * w.parts;
    for (u32 i = threadIdx.x / 32 * gridDim.x + blockIdx.x; i < end; i += warps) {
        u32 part = i % w.parts, n = i / w.parts, k = n % each, src, row = low_place(p, lb, n / each, src), count = 1;
        u32 note = line_load(notes + (u64)row * (1 + topK)).a, token = note & 0xffff;
        int slot = lane < topK ? ((const int *)p.slot)[(u64)row * topK + lane] : -1;
        float weight = 0;
        u32 place = token * w.width;
        if (p.c.mode == PARTIALS) {
            slot = row;
            place += note >> 16;
        } else if (p.c.mode == INVARIANT_SUM) {
            slot = __shfl_sync(~0u, slot, k);
            if (slot < 0)
                continue;
            place += k;
        } else {
            u32 with = __ballot_sync(~0u, slot >= 0), at = nth_there(with, lane);
            count = __popc(with);
            if (slot >= 0)
                weight = ((const float *)p.weight)[slot];
            slot = __shfl_sync(~0u, slot, at);
            weight = __shfl_sync(~0u, weight, at);
            place += note >> 16;
        }
        u64 to = p.ex.peers[src] + w.back + (u64)place * w.backStride, from = p.y + (i64)slot * p.yStride;
        u32 lo = part * step, hi = min(units, lo + step);
        DELAY();
        if (vector)
            low_piece<N, uint4>(to, from, weight, count, p.c.mode == EXPERTS, lo, hi);
        else
            low_piece<N, typename N::Raw>(to, from, weight, count, p.c.mode == EXPERTS, lo, hi);
        __syncwarp();
        if (lane == 0) {
            fence(p.c.meet); // carries what the warp wrote
            DELAY();
            store_relaxed(word_of(p.ex.peers[src], w.pieces) + (u64)place * w.parts + part, lb.call);
        }
    }
}

// low_gather adds up what came back. It returns to each thread why it gave up, and on whom.
template <class N, int MODE> __device__ __noinline__ u32 low_gather(const LowCombineArgs &p, const LowBlock &lb, u32 &from) {
    const u32 size = sizeof(typename N::Raw);
    const Low &w = p.low;
    u64 mine = p.ex.peers[p.ex.experts.rank], bits = p.c.to.out | (u64)p.c.to.outStride | (u64)p.c.hidden * size;
    for (u32 i = 0; i < p.c.to.numBias; i++)
        bits |= p.c.to.bias[i] | (u64)p.c.to.biasStride[i];
    bool vector = (bits & 15) == 0;
    u32 lane = threadIdx.x & 31, unit = vector ? 16 / size : 1, units = p.c.hidden / unit, step = w.step / unit;
    u32 end = *(const u32 *)p.c.numTokens * w.parts, warps = gridDim.x * (blockDim.x / 32);
    for (u32 i = threadIdx.x / 32 * gridDim.x + blockIdx.x; i < end; i += warps) {
        u32 token = i / w.parts, part = i % w.parts, place = token * w.width + lane;
        int rank = -1;
        float weight = 0;
        if (MODE == INVARIANT_SUM && lane < p.c.topK) {
            Term v = ((const Term *)p.c.terms)[(u64)token * p.c.topK + lane];
            rank = v.rank;
            weight = v.weight;
            place = v.slot;
        } else if (MODE == PARTIALS && lane < p.c.fan) {
            rank = ((const Sent *)p.c.rows)[(u64)token * p.c.fan + lane].rank;
        }
        u32 ends = __ballot_sync(~0u, rank < 0), n = ends ? __ffs(ends) - 1 : 32, why = 0;
        if (lane < n)
            why = wait_word(p.c.meet, p.ex, w, word_of(mine, w.pieces) + (u64)place * w.parts + part, lb.call, rank, 0, 0);
        if (__any_sync(~0u, why != 0)) { // and meets the other lanes, who read what it waited for
            from = why ? rank : 0;
            return why;
        }
        __syncwarp(); // a vote orders no memory
        u64 row = lane < n ? mine + w.back + (u64)place * w.backStride : 0;
        u32 lo = part * step, hi = min(units, lo + step);
        if (vector)
            Sum<N, MODE, uint4>{p.c.to, row, weight, 0, n, token, hi}.template run<1>(lo);
        else
            Sum<N, MODE, typename N::Raw>{p.c.to, row, weight, 0, n, token, hi}.template run<1>(lo);
    }
    return 0;
}

template <class N> __device__ __forceinline__ u32 low_sums(const LowCombineArgs &p, const LowBlock &lb, u32 &from) {
    return p.c.mode == INVARIANT_SUM ? low_gather<N, INVARIANT_SUM>(p, lb, from) : low_gather<N, PARTIALS>(p, lb, from);
}

// low_back is the first half: it waits for nobody.
__device__ void low_back(const LowCombineArgs &p, LowBlock &lb) {
    const Experts &x = p.ex.experts;
    u32 t = threadIdx.x;
    if (blockIdx.x == 0 && t < x.numRanks) { // what was before this kernel has ended; see lowlatency.cuh
        DELAY();
        store_relaxed(word_of(p.ex.peers[t], p.low.came) + x.rank, lb.call);
        store_release(word_of(p.ex.peers[t], p.low.passed) + x.rank, lb.call);
    }
    if (t == 0) {
        const LowBank *bank = bank_of(p.low);
        lb.rows[0] = 0;
        for (u32 i = 0; i < x.numRanks; i++)
            lb.rows[i + 1] = lb.rows[i] + bank->rows[i];
        if (blockIdx.x == 0)
            bank_of(p.low)->combine = lb.call;
    }
    __syncthreads();
    switch (p.c.dtype) {
    case F32: low_return<NumF32>(p, lb); break;
    case BF16: low_return<NumBF16>(p, lb); break;
    default: low_return<NumF16>(p, lb);
    }
}

// low_home is the second half. GO, LEAVE or ELSEWHERE.
__device__ u32 low_home(const LowCombineArgs &p, Shared &sh, const LowBlock &lb) {
    const Args &a = p.c.meet;
    const Experts &x = p.ex.experts;
    u32 t = threadIdx.x, from = t;
    const u64 *came = word_of(p.ex.peers[x.rank], p.low.came) + t;
    u32 why = t < x.numRanks ? wait_word(a, p.ex, p.low, came, lb.call, t, lb.call, lb.epoch) : 0;
    u32 state = low_verdict(a, sh, why, from, lb.call, 1);
    if (state != GO)
        return state;
    switch (p.c.dtype) {
    case F32: why = low_sums<NumF32>(p, lb, from); break;
    case BF16: why = low_sums<NumBF16>(p, lb, from); break;
    default: why = low_sums<NumF16>(p, lb, from);
    }
    state = low_verdict(a, sh, why, from, lb.call, 2);
    if (state == GO && blockIdx.x == 0 && t == 0)
        bank_of(p.low)->homes = load_relaxed(&bank_of(p.low)->sends) / WHOLE;
    return state;
}

// weft_low_combine: see above.
extern "C" __global__ void __launch_bounds__(THREADS, 1) weft_low_combine(const __grid_constant__ LowCombineArgs p) {
    __shared__ Shared sh;
    __shared__ LowBlock lb;
    follow();
    const Args &a = p.c.meet;
    u32 state = low_start(a, sh, lb, p.low, true);
    if (state == GO && (p.low.phases & LOW_SEND))
        low_back(p, lb);
    if (state == GO && (p.low.phases & LOW_RECV))
        state = low_home(p, sh, lb);
    low_end(a, sh, lb, p.low, state, false, false);
}
