// How dispatch narrows rows on their way: see quant.cu for the numbers, push.cuh for the rest.

// push_scaled writes the lanes' scales, of groups [first, end) of a row, to all its places.
__device__ __forceinline__ void push_scaled(float *scales, u32 n, float scale, u32 first, u32 end) {
    u32 g = first + group_of();
    for (u32 k = 0; k < n; k++) {
        float *to = (float *)__shfl_sync(~0u, (u64)scales, k);
        if (threadIdx.x % 4 == 0 && g < end)
            to[g] = scale;
    }
}

// push_narrow sends the block's rows through registers.
template <class N> __device__ __noinline__ void push_narrow(const DispatchArgs &d, const Route &r) {
    u32 lane = threadIdx.x & 31, hidden = d.ex.hidden, groups = (hidden + GROUP - 1) / GROUP, steps = (hidden + NARROW_STEP - 1) / NARROW_STEP;
    Work w = work_of(r, steps, 1, blockDim.x / 32);
    bool vector = ((d.src | (u64)d.srcStride) & 15) == 0;
    for (u32 i = threadIdx.x / 32; i < w.n * w.parts; i += blockDim.x / 32) {
        u32 token = r.first + i / w.parts * r.step, part = i % w.parts;
        Places p = places_of(d, r, token);
        const u8 *src = (const u8 *)d.src + (i64)token * d.srcStride;
        float *scales = (float *)(p.base + d.bank.scales) + (u64)p.at * groups;
        u32 lo = steps * part / w.parts, hi = p.n > 0 ? steps * (part + 1) / w.parts : lo;
        for (u32 s = lo; s < hi; s += NARROW_DEEP) {
            Eight<N> x[NARROW_DEEP];
            uint2 q[NARROW_DEEP];
            load_steps<N>(x, src, s, hi, hidden, vector);
            float scale = quantise<N>(x, min(NARROW_DEEP, hi - s), q);
            DELAY();
            for (u32 j = 0; j < p.n; j++) {
                u8 *row = (u8 *)__shfl_sync(~0u, p.row, j);
#pragma unroll
                for (u32 k = 0; k < NARROW_DEEP; k++)
                    if (s + k < hi)
                        store8(row, q[k], (s + k) * NARROW_STEP + lane * 8, hidden);
            }
            push_scaled(scales, p.n, scale, s * 2, min(groups, hi * 2));
        }
    }
}

#if __CUDA_ARCH__ >= 900
// Strip is values in shared memory, a multiple of 16, that are narrowed in their place: what is written lies in front of what has yet
// to be read.
template <class N> struct Strip {
    u8 *at;
    u32 values;

    // load loads the lane's values from c on; zeros behind the last.
    __device__ __forceinline__ void load(Eight<N> &x, u32 c) const {
#pragma unroll
        for (int i = 0; i < Eight<N>::UNITS; i++)
            x.v[i] = c < values ? ((const uint4 *)(at + c * sizeof(typename N::Raw)))[i] : make_uint4(0, 0, 0, 0);
    }
    __device__ __forceinline__ void store(uint2 q, u32 c) const {
        if (c < values)
            *(uint2 *)(at + c) = q;
    }

    // divide narrows steps from s on that quantise would divide.
    __device__ __noinline__ float divide(u32 s) const {
        float scale = 0;
#pragma unroll 1
        for (u32 k = 0; k < NARROW_DEEP; k++) {
            u32 c = (s + k) * NARROW_STEP + (threadIdx.x & 31) * 8;
            Eight<N> x;
            load(x, c);
            Narrowed v = divided<N>(x);
            __syncwarp(); // all have read
            store(v.q, c);
            if ((threadIdx.x >> 2 & 3) == k)
                scale = v.scale;
        }
        return scale;
    }

    // narrow narrows NARROW_DEEP steps from s on, and returns the scale of the lane's group_of. A whole warp.
    __device__ __forceinline__ float narrow(u32 s) const {
        Eight<N> x[NARROW_DEEP];
        uint2 q[NARROW_DEEP];
        u32 c = s * NARROW_STEP + (threadIdx.x & 31) * 8;
#pragma unroll
        for (u32 k = 0; k < NARROW_DEEP; k++)
            load(x[k], c + k * NARROW_STEP);
        float scale = multiplied<N, true>(x, NARROW_DEEP, q);
        if (scale == 0)
            return divide(s);
        __syncwarp(); // all have read
#pragma unroll
        for (u32 k = 0; k < NARROW_DEEP; k++)
            store(q[k], c + k * NARROW_STEP);
        return scale;
    }
};

// push_narrow_bulk is push_bulk with a step more: between a piece's load and its stores the warp narrows it.
template <class N> __device__ __noinline__ void push_narrow_bulk(const DispatchArgs &d, const Route &r, u8 *memory, u64 *full) {
    const u32 SIZE = sizeof(typename N::Raw), VALUES = PIECE / SIZE;
    u32 warp = threadIdx.x / 32 - COUNTERS, lane = threadIdx.x & 31, hidden = d.ex.hidden, groups = (hidden + GROUP - 1) / GROUP;
    u32 pieces = (hidden + VALUES - 1) / VALUES;
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
    for (u32 done = 0, loads = 0; done < mine; done++) {
        for (; loads < mine && loads < done + AHEAD; loads++) {
            bulk_read<STAGES - AHEAD>(); // what was stored from this stage has been read
            __syncwarp();
            if (lane == 0) {
                u32 i = warp + loads * STREAMS, token = r.first + i / pieces * r.step, at = i % pieces * VALUES;
                u32 bytes = min(VALUES, hidden - at) * SIZE, s = loads % STAGES;
                barrier_expect(full + s, bytes);
                bulk_load(memory + s * PIECE, (const u8 *)d.src + (i64)token * d.srcStride + at * SIZE, bytes, full + s, policy);
            }
        }
        u32 i = warp + done * STREAMS, at = i % pieces * VALUES, values = min(VALUES, hidden - at);
        u8 *piece = memory + done % STAGES * PIECE;
        Places p = places_of(d, r, r.first + i / pieces * r.step);
        barrier_wait(full + done % STAGES, done / STAGES & 1);
        DELAY();
        float *scales = (float *)(p.base + d.bank.scales) + (u64)p.at * groups;
        for (u32 s = 0, first = at / GROUP; p.n > 0 && s * NARROW_STEP < values; s += NARROW_DEEP) {
            float scale = Strip<N>{piece, values}.narrow(s);
            push_scaled(scales, p.n, scale, first + s * 2, first + (values + GROUP - 1) / GROUP);
        }
        bulk_fence_shared(); // what this lane wrote and read there, for the stores and for the next load
        __syncwarp();
        if (lane < p.n)
            bulk_store((u8 *)p.row + at, piece, values);
        bulk_commit();
    }
    bulk_complete();
}
#endif

// push_fp8 narrows the block's rows on their way. bulk is shared memory for bulk copies, or 0.
template <class N> __device__ __forceinline__ void push_fp8_of(const DispatchArgs &d, const Route &r, u8 *bulk, u64 *full) {
#if __CUDA_ARCH__ >= 900
    if (bulk) {
        if (threadIdx.x / 32 - COUNTERS < STREAMS)
            push_narrow_bulk<N>(d, r, bulk, full);
        return;
    }
#endif
    push_narrow<N>(d, r);
}

__device__ __forceinline__ void push_fp8(const DispatchArgs &d, const Route &r, u8 *bulk, u64 *full) {
    switch (d.dtype) {
    case F32: push_fp8_of<NumF32>(d, r, bulk, full); break;
    case BF16: push_fp8_of<NumBF16>(d, r, bulk, full); break;
    default: push_fp8_of<NumF16>(d, r, bulk, full);
    }
}

// push_rows sends the block's rows.
__device__ void push_rows(const DispatchArgs &d, const Route &r, u8 *bulk, u64 *full) {
    if (d.fp8) {
        push_fp8(d, r, bulk, full);
        return;
    }
#if __CUDA_ARCH__ >= 900
    if (bulk) {
        if (threadIdx.x / 32 - COUNTERS < STREAMS)
            push_bulk(d, r, bulk, full);
        return;
    }
#endif
    push_units(d, r, d.src, d.srcStride, d.rowBytes, d.bank.x);
}

// may_bulk says whether bulk copies can push the block's rows.
__device__ __forceinline__ bool may_bulk(const DispatchArgs &d, const Route &r) {
#if __CUDA_ARCH__ >= 900
    return d.bulk && d.rowBytes >= 1024 && r.step == 1 && ((d.src | (u64)d.srcStride | d.rowBytes) & 15) == 0;
#else
    return false;
#endif
}
