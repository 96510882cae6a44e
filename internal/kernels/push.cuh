// How dispatch sends rows: through registers or by bulk copies. See dispatch.cu, and push_fp8.cuh for rows narrowed on their way.

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

// Places are where a token's row goes: lane i of a warp holds place i.
struct Places {
    u64 row, base; // its address; its rank's region
    int at, rank;
    u32 n;
};

__device__ __forceinline__ Places places_of(const DispatchArgs &d, const Route &r, u32 token) {
    const Exchange &ex = d.ex;
    u32 lane = threadIdx.x & 31;
    int at = -1, rank = -1;
    if (d.flags & EXPANDED) {
        if (lane < ex.experts.topK) {
            Term v = ((const Term *)d.bank.terms)[(u64)token * ex.experts.topK + lane];
            at = v.slot;
            rank = v.rank;
        }
    } else if (lane < ex.fan) {
        Sent v = sent_of(d, r, token)[lane];
        at = v.row;
        rank = v.rank;
    }
    u32 ends = __ballot_sync(~0u, rank < 0);
    Places p = {0, 0, at, rank, ends ? (u32)__ffs(ends) - 1 : 32};
    if (lane < p.n) {
        p.base = ex.peers[rank];
        p.row = p.base + d.bank.x + (u64)at * d.rowBytes;
    }
    return p;
}

// Work is the block's share of pushing: its tokens, and how many warps share a row of units.
struct Work {
    u32 n, parts;
};

__device__ __forceinline__ Work work_of(const Route &r, u32 units, u32 least, u32 warps) {
    u32 limit = r.step == 1 ? r.hi : r.tokens;
    Work w = {limit > r.first ? (limit - r.first + r.step - 1) / r.step : 0, 1};
    u32 most = (units + least - 1) / least;
    if (w.n > 0)
        w.parts = max(1u, min(warps / w.n, most));
    return w;
}

// push_units sends rows of the block's tokens, of so many bytes, to those at offset to of their ranks' regions: through
// registers, in the widest units that alignment allows.
__device__ __noinline__ void push_units(const DispatchArgs &d, const Route &r, u64 from, i64 stride, u32 bytes, u64 to) {
    u64 align = from | (u64)stride | bytes;
    u32 unit = align & 1 ? 1 : align & 2 ? 2 : align & 4 ? 4 : align & 8 ? 8 : 16, units = bytes / unit;
    Work w = work_of(r, units, 32, blockDim.x / 32);
    for (u32 i = threadIdx.x / 32; i < w.n * w.parts; i += blockDim.x / 32) {
        u32 token = r.first + i / w.parts * r.step, part = i % w.parts;
        Places p = places_of(d, r, token);
        const u8 *src = (const u8 *)from + (i64)token * stride;
        u64 row = p.base + to + (u64)p.at * bytes; // of lanes below p.n
        u32 lo = units * part / w.parts, hi = units * (part + 1) / w.parts;
        DELAY();
        switch (unit) {
        case 16: copy_out<uint4>(src, row, p.n, lo, hi); break;
        case 8: copy_out<uint2>(src, row, p.n, lo, hi); break;
        case 4: copy_out<u32>(src, row, p.n, lo, hi); break;
        case 2: copy_out<u16>(src, row, p.n, lo, hi); break;
        default: copy_out<u8>(src, row, p.n, lo, hi);
        }
    }
}

#if __CUDA_ARCH__ >= 900
// STREAMS warps, those that do not count, push by bulk copies; each has a ring of STAGES pieces of shared memory.
#ifndef AHEAD
#define STREAMS 4u
#define STAGES 5u
#define AHEAD 2u
#define PIECE 8192u
#define BATCH 1u
#endif
#define BULK_BYTES (STREAMS * STAGES * PIECE)

// push_bulk sends the block's rows by bulk copies: a row's piece is loaded once into shared memory and stored from there to
// all its places, a store by each lane. Nothing passes through registers; loads of AHEAD pieces and the stores of others are
// in flight. A lane waits for its own stores before the second meeting.
__device__ __noinline__ void push_bulk(const DispatchArgs &d, const Route &r, u8 *memory, u64 *full) {
    u32 warp = threadIdx.x / 32 - COUNTERS, lane = threadIdx.x & 31, pieces = (d.rowBytes + PIECE - 1) / PIECE;
    Work w = work_of(r, 1, 1, 1);
    u32 count = w.n * pieces, mine = warp < count ? (count - warp + STREAMS - 1) / STREAMS : 0;
    const u64 policy = streaming();
    full += warp * STAGES;
    memory += warp * STAGES * PIECE;
    if (lane == 0)
        for (u32 i = 0; i < STAGES; i++)
            barrier_init(full + i, 1);
    bulk_fence(); // the barriers; and rows that earlier kernels wrote
    __syncwarp();
    for (u32 done = 0, loads = 0; done < mine; done += BATCH) {
        for (; loads < mine && loads < done + AHEAD; loads++) {
            bulk_read<(STAGES - AHEAD + BATCH) / BATCH - 1>(); // what was stored from this stage has been read
            __syncwarp();
            if (lane == 0) {
                u32 i = warp + loads * STREAMS, token = r.first + i / pieces * r.step, at = i % pieces * PIECE;
                u32 bytes = min(PIECE, d.rowBytes - at), s = loads % STAGES;
                barrier_expect(full + s, bytes);
                bulk_load(memory + s * PIECE, (const u8 *)d.src + (u64)token * d.srcStride + at, bytes, full + s, policy);
            }
        }
        Places p[BATCH];
#pragma unroll
        for (u32 b = 0; b < BATCH; b++) {
            u32 i = warp + (done + b) * STREAMS;
            p[b].n = 0;
            if (done + b < mine) {
                p[b] = places_of(d, r, r.first + i / pieces * r.step);
                barrier_wait(full + (done + b) % STAGES, (done + b) / STAGES & 1);
            }
        }
        DELAY();
        // A batch goes rank by rank, so that what one rank gets lies together.
        for (u32 to = 0; to < (BATCH > 1 ? d.ex.experts.numRanks : 1); to++)
#pragma unroll
            for (u32 b = 0; b < BATCH; b++)
                if (lane < p[b].n && (BATCH == 1 || p[b].rank == (int)to)) {
                    u32 at = (warp + (done + b) * STREAMS) % pieces * PIECE;
                    bulk_store((u8 *)p[b].row + at, memory + (done + b) % STAGES * PIECE, min(PIECE, d.rowBytes - at));
                }
        bulk_commit();
    }
    bulk_complete();
}
#endif

// push_scales sends the caller's own scales of the block's rows. A whole block, when all rows have their places.
__device__ __forceinline__ void push_scales(const DispatchArgs &d, const Route &r) {
    if (d.scaleBytes && !d.fp8)
        push_units(d, r, d.scales, d.scaleStride, d.scaleBytes, d.bank.scales);
}
