// A small all_reduce in one trip: every rank writes its whole vector to every peer, each 8 bytes with their epoch in the same
// 16-byte store, so that data and flag arrive together and nobody meets before or after. Then each adds up what it got, in
// rank order. Bytes: 2 P S written a rank, twice the payload; it wins while a meeting costs more than that.
//
// Buffers are double-buffered by the epoch's lowest bit, for the reason that entries are. A rank that finds a peer in
// another call (its header differs, or it publishes an entry for this epoch) goes to begin(), where all ranks then meet:
// they find out together, or do the usual all_reduce when only the alignment of their buffers kept one from coming here.
// A result is written only when all headers agree: the source may lie in the same place and is needed again.
// Launch: a few blocks. One part, f32, bf16 or f16, without gaps, a multiple of 8 bytes up to SMALL_BYTES.

// Small is one round of a small all_reduce.
struct Small {
    const Line *mine; // lines of source 0; the others follow
    u64 e;
    u32 size, own; // own: what a peer's header should say
};

// another follows a look that found source p late: it says why to stop waiting, as impatient does, or that p's header is of
// another call.
__device__ __noinline__ u32 another(const Ctl *c, const Small &m, Patience &w, u32 p) {
    u32 why = impatient(c, w, p, m.e, ~0ull);
    if (why != 0 || (w.looks & 7) != 0)
        return why;
    Line h = line_load(m.mine + p * SMALL_STRIDE);
    return h.flagA == (u32)m.e && h.flagB == (u32)m.e && h.a != m.own ? ELSEWHERE : 0;
}

// header waits for source p's header of this epoch, or a later one, and compares.
__device__ __forceinline__ u32 header(const Ctl *c, const Small &m, u32 p) {
    Patience w = {};
    u32 why = 0;
    Line v;
    while (v = line_load(m.mine + p * SMALL_STRIDE), (int)(v.flagA - (u32)m.e) < 0 || v.flagA != v.flagB)
        if ((why = another(c, m, w, p)) != 0)
            return why;
    return v.flagA == (u32)m.e && v.a != m.own ? ELSEWHERE : 0;
}

// add_up waits for line i of all sources and adds them up in rank order. A look is a load of all lines that are summed next:
// they come at about one time, and looks one after the other would cost a trip each.
template <class N> __device__ __forceinline__ u32 add_up(const Ctl *c, const Small &m, u32 i, uint2 &result, u32 &from) {
    typedef typename N::Raw Raw;
    const int W = 8 / sizeof(Raw);
    float acc[W] = {};
    Patience w = {};
    const Line *line = m.mine + 1 + i;
    for (u32 s = 0; s < m.size; s += 8) {
        Line v[8];
        for (;;) {
            u32 late = ~0u;
#pragma unroll
            for (u32 k = 0; k < 8; k++)
                if (s + k < m.size)
                    v[k] = line_load(line + (s + k) * SMALL_STRIDE);
#pragma unroll
            for (u32 k = 0; k < 8; k++)
                if (s + k < m.size && (v[k].flagA != (u32)m.e || v[k].flagB != (u32)m.e))
                    late = s + k;
            if (late == ~0u)
                break;
            u32 why = another(c, m, w, late);
            if (why != 0) {
                from = late;
                return why;
            }
        }
#pragma unroll
        for (u32 k = 0; k < 8; k++) {
            if (s + k >= m.size)
                continue;
            union { uint2 q; Raw x[W]; } u;
            u.q = make_uint2(v[k].a, v[k].b);
#pragma unroll
            for (int j = 0; j < W; j++)
                acc[j] = plus(acc[j], N::up(u.x[j]));
        }
    }
    union { uint2 q; Raw x[W]; } out;
#pragma unroll
    for (int j = 0; j < W; j++)
        out.x[j] = N::down(acc[j]);
    result = out.q;
    return 0;
}

// verdict is a block's: 0, ELSEWHERE or LEAVE, from each thread's reason and the rank it waited for.
__device__ u32 verdict(const Args &a, Shared &sh, u32 why, u32 from, u64 e) {
    if (!__syncthreads_or(why))
        return 0;
    if (__syncthreads_or(why != 0 && why != ELSEWHERE)) {
        gave_up(a.ctl, a, sh, why == ELSEWHERE ? 0 : why, from, e, 0, 3);
        return LEAVE;
    }
    return ELSEWHERE;
}

// small_sum exchanges and reduces once. All threads get the same: 0, ELSEWHERE or LEAVE.
template <class N> __device__ u32 small_sum(const Args &a, Shared &sh, u64 e) {
    Ctl *c = a.ctl;
    const Part &part = a.entry.parts[0];
    const u32 size = c->size, rank = c->rank, t = threadIdx.x, flag = (u32)e;
    const u32 lines = part.srcRows * part.cols / (8 / sizeof(typename N::Raw));
    const u32 id = blockIdx.x * blockDim.x + t, step = gridDim.x * blockDim.x;
    const u64 parity = (e & 1) * size;
    Small m = {(const Line *)c->small[rank] + parity * SMALL_STRIDE, e, size,
               (u32)(a.entry.signature ^ a.entry.signature >> 32)};
    if (blockIdx.x == 0 && t < size) {
        DELAY();
        line_store((Line *)c->small[t] + (parity + rank) * SMALL_STRIDE, m.own, a.entry.call, flag);
    }
    for (u32 i = id; i < lines; i += step) {
        uint2 v = load_stream((const uint2 *)part.src + i);
        for (u32 k = 0; k < size; k++) {
            u32 p = rank + k < size ? rank + k : rank + k - size;
            DELAY();
            line_store((Line *)c->small[p] + (parity + rank) * SMALL_STRIDE + 1 + i, v.x, v.y, flag);
        }
    }
    // Headers first: looks at all lines by all threads would keep the memory busy that the lines travel through. When the
    // headers are there, so are most of the lines.
    u32 why = t < size ? header(c, m, t) : 0, from = t, state = verdict(a, sh, why, from, e);
    if (state != 0)
        return state;
    uint2 *dst = (uint2 *)part.dst;
    for (u32 i = id; i < lines && why == 0; i += step) {
        uint2 sum;
        if ((why = add_up<N>(c, m, i, sum, from)) == 0)
            dst[i] = sum;
    }
    return verdict(a, sh, why, from, e);
}

// meet_instead is the usual way; out of line, so that it costs the short way no registers.
__device__ __noinline__ void meet_instead(const Args &a, Shared &sh, Share &s, Pipe &pipe) { reduce<true>(a, sh, s, pipe); }

// weft_small: a small all_reduce, a.peer times (at least once) in one launch.
extern "C" __global__ void __launch_bounds__(THREADS, 1) weft_small(const __grid_constant__ Args a) {
    __shared__ Shared sh;
    __shared__ Share s;
    __shared__ Pipe pipe;
    follow();
    Ctl *c = a.ctl;
    u64 e = next_epoch(a);
    u32 state = 0, times = a.peer > 1 ? a.peer : 1;
    for (u32 i = 0; i < times && state == 0; i++, e++) {
        switch (a.entry.parts[0].dtype) {
        case F32: state = small_sum<NumF32>(a, sh, e); break;
        case BF16: state = small_sum<NumBF16>(a, sh, e); break;
        default: state = small_sum<NumF16>(a, sh, e); break;
        }
    }
    if (state == ELSEWHERE) {
        meet_instead(a, sh, s, pipe);
    } else if (state != 0) {
        abandon(a, sh);
    } else if (times == 1) {
        if (threadIdx.x == 0)
            count_epoch(c);
    } else {
        if (threadIdx.x == 0)
            sh.epoch = e - 1;
        __syncthreads();
        finish(a, sh, true);
    }
}
