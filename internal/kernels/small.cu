// A small all_reduce in one trip: every rank writes its whole vector to every peer, each 8 bytes with their epoch in the same
// 16-byte store, so that data and flag arrive together and nobody meets before or after. Then each adds up what it got, in
// rank order. Bytes: 2 P S written a rank, twice the payload; it wins while a meeting costs more than that.
//
// Buffers are double-buffered by the epoch's lowest bit, for the reason that entries are. A rank that finds a peer in
// another call (its header differs, or it publishes an entry for this epoch) goes to begin(), where all ranks then meet:
// they find out together, or do the usual all_reduce when only the alignment of their buffers kept one from coming here.
// Launch: a few blocks of THREADS threads. One part, f32, bf16 or f16, without gaps, a multiple of 8 bytes up to SMALL_BYTES.

#define SMALL_BYTES (32 << 10)
#define SMALL_LINES (SMALL_BYTES / 8)
#define SMALL_STRIDE (SMALL_LINES + 8) // lines of one source; line 0 is its header

// headers waits for every rank's header of epoch e, or a later one, and compares. All threads call it and get the same.
__device__ u32 headers(const Args &a, Shared &sh, const Line *mine, u64 e) {
    Ctl *c = a.ctl;
    u32 t = threadIdx.x, why = 0, own = (u32)(a.entry.signature ^ a.entry.signature >> 32);
    if (t < c->size) {
        Patience w = {};
        Line v;
        while (v = line_load(mine + t * SMALL_STRIDE), (int)(v.flagA - (u32)e) < 0 || v.flagA != v.flagB)
            if ((why = impatient(c, w, t, e, ~0ull)) != 0)
                break;
        if (why == 0 && v.flagA == (u32)e && v.a != own)
            why = ELSEWHERE;
    }
    if (!__syncthreads_or(why))
        return 0;
    if (__syncthreads_or(why != 0 && why != ELSEWHERE)) {
        gave_up(c, a, sh, why == ELSEWHERE ? 0 : why, t, e, 0, 3);
        return LEAVE;
    }
    return ELSEWHERE;
}

// small_sum exchanges and reduces once. All threads get the same: 0, ELSEWHERE or LEAVE.
template <class N> __device__ u32 small_sum(const Args &a, Shared &sh, u64 e) {
    typedef typename N::Raw Raw;
    const int W = 8 / sizeof(Raw);
    Ctl *c = a.ctl;
    const Part &part = a.entry.parts[0];
    u32 size = c->size, rank = c->rank, t = threadIdx.x, flag = (u32)e;
    u32 lines = part.srcRows * part.cols / W;
    u64 parity = (e & 1) * size;
    u32 id = blockIdx.x * blockDim.x + t, step = gridDim.x * blockDim.x;
    if (blockIdx.x == 0 && t < size)
        line_store((Line *)c->small[t] + (parity + rank) * SMALL_STRIDE,
                   (u32)(a.entry.signature ^ a.entry.signature >> 32), a.entry.call, flag);
    for (u32 i = id; i < lines; i += step) {
        uint2 v = load_stream((const uint2 *)part.src + i);
        for (u32 k = 0; k < size; k++) {
            u32 p = rank + k < size ? rank + k : rank + k - size;
            line_store((Line *)c->small[p] + (parity + rank) * SMALL_STRIDE + 1 + i, v.x, v.y, flag);
        }
    }
    const Line *mine = (const Line *)c->small[rank] + parity * SMALL_STRIDE;
    u32 state = headers(a, sh, mine, e);
    if (state != 0)
        return state;
    u32 why = 0, from = 0;
    for (u32 i = id; i < lines && why == 0; i += step) {
        float acc[W] = {};
        Patience w = {};
        for (u32 s = 0; s < size; s += 8) {
            Line v[8];
#pragma unroll
            for (u32 k = 0; k < 8; k++)
                if (s + k < size)
                    v[k] = line_load(mine + (s + k) * SMALL_STRIDE + 1 + i);
#pragma unroll
            for (u32 k = 0; k < 8; k++) {
                if (s + k >= size || why != 0)
                    continue;
                while (v[k].flagA != flag || v[k].flagB != flag) {
                    if ((why = impatient(c, w, s + k, e, ~0ull)) != 0) {
                        from = s + k;
                        break;
                    }
                    v[k] = line_load(mine + (s + k) * SMALL_STRIDE + 1 + i);
                }
                union { uint2 q; Raw x[W]; } u;
                u.q = make_uint2(v[k].a, v[k].b);
#pragma unroll
                for (int j = 0; j < W; j++)
                    acc[j] = plus(acc[j], N::up(u.x[j]));
            }
        }
        if (why != 0)
            break;
        union { uint2 q; Raw x[W]; } out;
#pragma unroll
        for (int j = 0; j < W; j++)
            out.x[j] = N::down(acc[j]);
        ((uint2 *)part.dst)[i] = out.q;
    }
    if (!__syncthreads_or(why))
        return 0;
    if (__syncthreads_or(why != 0 && why != ELSEWHERE)) {
        gave_up(c, a, sh, why == ELSEWHERE ? 0 : why, from, e, 0, 3);
        return LEAVE;
    }
    return ELSEWHERE;
}

// weft_small: a small all_reduce, a.peer times (at least once) in one launch.
extern "C" __global__ void __launch_bounds__(THREADS, 1) weft_small(const __grid_constant__ Args a) {
    __shared__ Shared sh;
    __shared__ Share s;
    Ctl *c = a.ctl;
    if (threadIdx.x == 0)
        sh.epoch = c->epoch;
    __syncthreads();
    u64 first = sh.epoch;
    u32 state = 0, times = a.peer > 1 ? a.peer : 1;
    for (u32 i = 1; i <= times && state == 0; i++) {
        switch (a.entry.parts[0].dtype) {
        case F32: state = small_sum<NumF32>(a, sh, first + i); break;
        case BF16: state = small_sum<NumBF16>(a, sh, first + i); break;
        default: state = small_sum<NumF16>(a, sh, first + i); break;
        }
    }
    if (state == ELSEWHERE) {
        reduce<true>(a, sh, s);
        return;
    }
    __syncthreads();
    if (threadIdx.x == 0)
        sh.epoch = first + times;
    __syncthreads();
    if (state == 0) {
        finish(a, sh, true);
    } else {
        abandon(a, sh);
    }
}
