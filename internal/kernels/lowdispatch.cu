// Dispatch of few tokens to fixed places; see lowlatency.cuh. Both halves are one kernel, of which a launch does what phases says.
//
// Launch: a block for each token, at most the rank's blocks, of THREADS threads, all resident; dynamic shared memory as
// weft_dispatch without bulk copies. Bytes: rows read once, written once for each place, and 16 (2 + topK) bytes of notes and flags for
// each. Floor: one way of a flag, behind the way of the rows. Tested by ep/eptest against its twin, package alltoall on the CPU.

// low_heads tells every rank how many rows and, for each of its experts, choices come. One block. quiet: none.
__device__ __noinline__ void low_heads(const LowDispatchArgs &p, const Tables &b, u64 call, bool quiet) {
    const Experts &x = p.d.ex.experts;
    const Low &w = p.low;
    for (u32 i = threadIdx.x; i < x.numRanks * w.headLines; i += blockDim.x) {
        u32 to = i / w.headLines, at = i - to * w.headLines, n[2] = {b.total[to], p.d.meet.entry.call};
        if (at > 0) {
            u32 first = first_of(x, to), end = first_of(x, to + 1), g = first + 2 * (at - 1);
            for (u32 j = 0; j < 2; j++)
                n[j] = g + j < end ? b.experts[g + j] : 0;
        }
        if (quiet)
            n[0] = n[1] = 0;
        DELAY();
        line_store((Line *)(p.d.ex.peers[to] + w.heads) + x.rank * w.headLines + at, n[0], n[1], (u32)call);
    }
}

// low_note writes choice at's note for each rank that its token goes to, and with RankInvariant its term. g is the expert, of
// rank, or -1; order is the choice's among those of g.
__device__ __forceinline__ void low_note(const LowDispatchArgs &p, const Route &r, u32 at, int g, u32 rank, u32 order, u64 call) {
    const DispatchArgs &d = p.d;
    const Experts &x = d.ex.experts;
    u32 topK = x.topK, token = quotient(at, x.inverseTopK), k = at - token * topK;
    float weight = ((const float *)d.weights)[at];
    if (d.flags & TERMS) { // in k order; choices that go nowhere are last
        u32 before = 0, all = 0, other;
        for (u32 j = 0; j < topK; j++) {
            u32 goes = choice_of(d, r, token * topK + j, other) >= 0;
            before += j < k ? goes : 0;
            all += goes;
        }
        u32 place = g >= 0 ? before : all + k - before;
        ((Term *)d.bank.terms)[(u64)token * topK + place] = Term{(int)at, g >= 0 ? (int)rank : -1, weight, (int)k};
    }
    u32 mask = r.masks[token];
    for (u32 j = 0; mask != 0; j++, mask &= mask - 1) {
        u32 to = __ffs(mask) - 1, row = sent_of(d, r, token)[j].row;
        Line *note = (Line *)(d.ex.peers[to] + p.low.notes) + (u64)row * (1 + topK);
        u32 word = g >= 0 && rank == to ? (u32)(g - first_of(x, to)) | order << 16 : NOWHERE;
        DELAY();
        line_store(note + 1 + k, word, __float_as_uint(weight), (u32)call);
        if (k == 0)
            line_store(note, token | j << 16, 0, (u32)call);
    }
}

// low_notes writes the notes of the warp's choices whose tokens the block pushes.
__device__ __noinline__ void low_notes(const LowDispatchArgs &p, const Route &r, u32 *mine, u64 call) {
    const DispatchArgs &d = p.d;
    const Experts &x = d.ex.experts;
    u32 lane = threadIdx.x & 31, lo, hi, topK = x.topK;
    warp_tokens(r, threadIdx.x / 32, lo, hi);
    for (u32 i = lo * topK; i < hi * topK; i += 32) {
        u32 at = i + lane, rank = MAX_RANKS;
        bool there = at < hi * topK;
        int g = there ? choice_of(d, r, at, rank) : -1;
        u32 same = __match_any_sync(~0u, g), order = 0;
        if (g >= 0)
            order = mine[g] + __popc(same & lanes_below());
        __syncwarp();
        if (g >= 0 && (same & lanes_below()) == 0)
            mine[g] += __popc(same);
        if (there && quotient(at, x.inverseTopK) % gridDim.x == blockIdx.x)
            low_note(p, r, at, g, rank, order, call);
        __syncwarp();
    }
}

// low_few says whether the short way does, of few.cu: a thread is a choice, a lane a token.
__device__ __forceinline__ bool low_few(const LowDispatchArgs &p, const Route &r) {
    const Experts &x = p.d.ex.experts;
    return r.tokens <= FEW_TOKENS && r.tokens * x.topK <= FEW_CHOICES && x.numPhysical <= FEW_EXPERTS && r.tokens * p.d.ex.fan <= FEW_SENT;
}

// low_count_few counts, and places the rows of the block's tokens. Choices of each expert are counted by the block that speaks alone.
__device__ __noinline__ void low_count_few(const LowDispatchArgs &p, Route &r, Few &f, Tables &b, int g) {
    const DispatchArgs &d = p.d;
    const Experts &x = d.ex.experts;
    u32 t = threadIdx.x, choices = r.tokens * x.topK;
    if (t < FEW_CHOICES) {
        f.expert[t] = g;
        f.rank[t] = g >= 0 ? rank_of(x, g) : MAX_RANKS;
    }
    if (t < FEW_TOKENS)
        r.few[t] = 0;
    if (t < MAX_RANKS)
        r.base[t] = x.rank * d.ex.maxTokens;
    __syncthreads();
    if (g >= 0)
        atomicOr(&r.few[quotient(t, x.inverseTopK)], 1u << f.rank[t]);
    u32 bad = __syncthreads_count(t < choices && g < 0);
    b.total = f.total;
    b.experts = f.total + x.numRanks + 1;
    if (t == 0)
        f.total[x.numRanks] = bad;
    if (t < 32) {
        few_rows(d, r, f);
        __syncwarp();
        few_sent(d, r, f);
    }
    for (u32 i = t - 32; blockIdx.x == 0 && t >= 32 && i < x.numPhysical; i += blockDim.x - 32)
        b.experts[i] = few_total(f, i, choices);
    __syncthreads();
    if (t < MAX_RANKS)
        r.keep[t] = t < x.numRanks ? f.total[t] : 0;
}

// low_count is the general way.
__device__ __noinline__ void low_count(const LowDispatchArgs &p, Route &r, Tables &b, u32 *pool) {
    const DispatchArgs &d = p.d;
    const Experts &x = d.ex.experts;
    u32 t = threadIdx.x, warp = t / 32;
    b = tables_of(x, r.warps, pool);
    count(d, r, b, true);
    if (t < MAX_RANKS) {
        r.keep[t] = t < x.numRanks ? b.total[t] : 0;
        r.base[t] = x.rank * d.ex.maxTokens;
        r.chunk[t] = 0;
    }
    __syncthreads();
    if (warp < r.warps)
        place_rows(d, r, b.perRank + warp * b.numRanks, true);
}

// low_refuse tells all ranks that this one does not take part in the call. One block. It takes the place of the bank's last refusal but
// one, and so waits until every rank has begun the last: a rank that refuses waits for nobody else, and would run away. FAULT, or LEAVE.
__device__ u32 low_refuse(const LowDispatchArgs &p, Shared &sh, const Route &r, u64 call) {
    const Args &a = p.d.meet;
    const Experts &x = p.d.ex.experts;
    u32 t = threadIdx.x;
    u64 mine = p.d.ex.peers[x.rank], place = p.low.refused + (u64)(p.low.bank * REFUSALS * MAX_RANKS + x.rank) * 8;
    u64 even = load_relaxed(word_of(mine, place)), odd = load_relaxed(word_of(mine, place) + MAX_RANKS);
    u32 oldest = odd < even, why = 0;
    if (min(even, odd) != 0 && t < x.numRanks && t != x.rank)
        why = wait_word(a, p.d.ex, p.low, word_of(mine, p.low.passed) + t, max(even, odd), t, 0, 0);
    if (low_verdict(a, sh, why, t, call, 1) != GO) // and all have read what thread x.rank overwrites
        return LEAVE;
    if (t < x.numRanks) {
        u64 to = p.d.ex.peers[t];
        store_relaxed(word_of(to, place) + oldest * MAX_RANKS, call);
        DELAY();
        store_release(word_of(to, p.low.passed) + x.rank, call);
    }
    if (t == 0 && !(p.d.flags & REFUSE)) {
        bank_of(p.low)->why = 1;
        bank_of(p.low)->call = call;
        report(a.ctl, a, record(BAD_TOKENS, x.rank, x.rank, r.fullest, min(p.d.tokens, p.d.ex.maxTokens)));
    }
    return FAULT;
}

// low_send is the first half. GO, LEAVE, ELSEWHERE, or FAULT when this rank refuses.
__device__ __noinline__ u32 low_send(const LowDispatchArgs &p, Shared &sh, Route &r, const LowBlock &lb, Few &f, u32 *pool) {
    const DispatchArgs &d = p.d;
    const Experts &x = d.ex.experts;
    const Low &w = p.low;
    const Args &a = d.meet;
    u32 t = threadIdx.x, warp = t / 32;
    bool speaks = blockIdx.x == 0, quiet = false;
    int id = t < min(d.tokens * x.topK, FEW_CHOICES) ? ((const int *)d.ids)[t] : -1; // on its way while the block begins
    if (speaks && t < x.numRanks) {
        DELAY();
        store_relaxed(word_of(d.ex.peers[t], w.ready) + x.rank, lb.call);
    }
    start(d, r, x.numPhysical);
    if (r.why)
        return speaks ? low_refuse(p, sh, r, lb.call) : FAULT;
    Tables b = {};
    bool few = low_few(p, r);
    u32 token = quotient(t, x.inverseTopK);
    int g = few && t < r.tokens * x.topK ? place_of(x, x.rank, token, id) : -1;
    if (few)
        low_count_few(p, r, f, b, g);
    else
        low_count(p, r, b, pool);
    if (!lb.fresh) {
        const u64 *ready = word_of(d.ex.peers[x.rank], w.ready) + t;
        u32 why = t < x.numRanks ? wait_word(a, d.ex, w, ready, lb.call, t, lb.call, lb.epoch) : 0;
        u32 state = low_verdict(a, sh, why, t, lb.call, 1);
        if (state == LEAVE || state == ELSEWHERE)
            return state;
        quiet = state == REFUSED; // the second half finds that too
    }
    __syncthreads();
    if (speaks)
        low_heads(p, b, lb.call, quiet);
    if (!quiet) {
        if (few && t < r.tokens * x.topK && token % gridDim.x == blockIdx.x)
            low_note(p, r, t, g, g >= 0 ? f.rank[t] : MAX_RANKS, g >= 0 ? few_order(f, t) : 0, lb.call);
        else if (!few && warp < r.warps)
            low_notes(p, r, b.perExpert + warp * b.numExperts, lb.call);
        push_rows(d, r, 0, 0);
        push_scales(d, r);
    }
    __syncthreads();
    fence(a); // in each thread that stores a flag
    u32 own = r.tokens > r.first ? (r.tokens - r.first + r.step - 1) / r.step : 0;
    for (u32 i = t; i < own * d.ex.fan && !quiet; i += blockDim.x) {
        u32 token = r.first + i / d.ex.fan * r.step, j = i % d.ex.fan;
        if (j >= __popc(r.masks[token]))
            continue;
        Sent v = sent_of(d, r, token)[j];
        DELAY();
        store_relaxed(word_of(d.ex.peers[v.rank], w.landed) + v.row, lb.call);
    }
    if (!speaks)
        return GO;
    if (t < x.numRanks)
        store_release(word_of(d.ex.peers[t], w.passed) + x.rank, lb.call);
    if (t == 0) {
        LowBank *bank = bank_of(w);
        u64 copies = 0;
        for (u32 i = 0; i < x.numRanks; i++)
            copies += r.keep[i];
        bank->call = lb.call;
        bank->why = 0;
        bank->tokens = r.tokens;
        bank->copies = copies;
        bank->own = r.keep[x.rank];
        bank->bad = b.total[x.numRanks];
    }
    return GO;
}

// low_conclude writes counts and offsets of this rank, and counts. One block; empty after an error.
__device__ __noinline__ void low_conclude(const LowDispatchArgs &p, const LowBlock &lb, const u32 *total, const u32 *offset, bool empty) {
    const DispatchArgs &d = p.d;
    const Experts &x = d.ex.experts;
    u32 t = threadIdx.x, n = x.numLocal;
    if (d.flags & REFUSE) // it has no bank
        return;
    LowBank *bank = bank_of(p.low);
    int *counts = (int *)d.bank.counts, *offsets = (int *)d.bank.offsets;
    u64 *stats = (u64 *)d.ex.stats;
    if (t < x.numRanks)
        bank->rows[t] = empty ? 0 : lb.rows[t + 1] - lb.rows[t];
    for (u32 l = t; l < n; l += blockDim.x) {
        u32 v = empty ? 0 : total[l];
        counts[l] = v;
        counts[n + l] = padded(v, x.alignment);
        offsets[l] = empty ? 0 : offset[l];
        stats[NUM_STATS + l] += v;
        if (v)
            atomicAdd(&stats[4], (u64)v);
    }
    if (t != 0)
        return;
    offsets[n] = empty ? 0 : offset[n];
    *(int *)d.bank.numRows = empty ? 0 : lb.rows[x.numRanks];
    *(int *)d.bank.numTokens = empty ? 0 : (int)bank->tokens;
    ((int *)d.bank.dropped)[0] = empty ? 0 : (int)bank->bad;
    ((int *)d.bank.dropped)[1] = 0;
    if (empty)
        return;
    stats[0] += 1;
    stats[1] += bank->tokens;
    stats[2] += bank->copies;
    stats[3] += bank->copies - bank->own;
    stats[5] += bank->bad;
}

// low_recv is the second half. GO, LEAVE, REFUSED or ELSEWHERE, or FAULT when this rank had refused.
__device__ __noinline__ u32 low_recv(const LowDispatchArgs &p, Shared &sh, LowBlock &lb, u32 *pool) {
    const DispatchArgs &d = p.d;
    const Experts &x = d.ex.experts;
    const Low &w = p.low;
    if (lb.why)
        return FAULT;
    u32 n = x.numLocal, why = 0, from = 0, *base = pool, *total = base + x.numRanks * n, *offset = total + n;
    const Line *heads = (const Line *)(d.ex.peers[x.rank] + w.heads);
    __syncthreads(); // the pool is free
    for (u32 i = threadIdx.x; i < x.numRanks * w.headLines; i += blockDim.x) {
        u32 src = i / w.headLines, at = i - src * w.headLines;
        Line v;
        if ((why = wait_line(d.meet, d.ex, w, heads + i, v, lb.call, src, lb.call, lb.epoch)) != 0) {
            from = src;
            break;
        }
        if (at == 0)
            lb.rows[src + 1] = v.a;
        if (at > 0 && 2 * (at - 1) < n)
            base[src * n + 2 * (at - 1)] = v.a;
        if (at > 0 && 2 * (at - 1) + 1 < n)
            base[src * n + 2 * (at - 1) + 1] = v.b;
    }
    u32 state = low_verdict(d.meet, sh, why, from, lb.call, 1);
    if (state != GO)
        return state;
    low_places(x, lb, base, total, offset);
    if (blockIdx.x == 0)
        low_conclude(p, lb, total, offset, false);
    u32 first = first_of(x, x.rank);
    pad(d, total - first, offset - first, blockDim.x);
    why = low_index(p, lb, base, from);
    return low_verdict(d.meet, sh, why, from, lb.call, 2);
}

// weft_low_dispatch: see above.
extern "C" __global__ void __launch_bounds__(THREADS, 1) weft_low_dispatch(const __grid_constant__ LowDispatchArgs p) {
    extern __shared__ __align__(128) u32 pool[];
    __shared__ Shared sh;
    __shared__ Route r;
    __shared__ LowBlock lb;
    __shared__ __align__(16) Few f;
    follow();
    const Args &a = p.d.meet;
    u32 state = low_start(a, sh, lb, p.low, false);
    if (state == GO && (p.low.phases & LOW_SEND))
        state = low_send(p, sh, r, lb, f, pool);
    if (state == GO && (p.low.phases & LOW_RECV))
        state = low_recv(p, sh, lb, pool);
    if (state != GO && blockIdx.x == 0)
        low_conclude(p, lb, 0, 0, true);
    low_end(a, sh, lb, p.low, state, p.d.flags & REFUSE, true);
}
