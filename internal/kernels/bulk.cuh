// Bulk copies (TMA) move chunks between device memory and shared memory: a thread keeps a hundred kilobytes in flight, and
// nothing passes through registers that need not be added up. sm_90 and later, all addresses and sizes multiples of 16 bytes.
//
// Order: what a chunk is read from was written by earlier kernels, which the first meeting has made visible; a fence hands that
// over to the copies, which are of another proxy. A thread that has stored waits until its copies are complete, not only
// read, and fences again before the second meeting.

#define COPY_CHUNK (16u << 10)
#define COPY_STAGES 6u // more keep no more in flight that matters, and each block longer at the end
#define RING (128u << 10) // bytes of shared memory for loads
#define OUTS 4u          // results on their way
#define OUT_BYTES (8u << 10)
#define BULK_SHARED (RING + OUTS * OUT_BYTES)
#define MAX_STAGES 12u

// reduce_chunk is the bytes that a chunk of a reduction takes from each of size ranks.
__device__ __forceinline__ u32 reduce_chunk(u32 size) { return min(OUT_BYTES, (RING / 4 / size) & ~127u); }

// Pipe is the state of a block's bulk copies in shared memory.
struct Pipe {
    u64 full[MAX_STAGES], empty[MAX_STAGES]; // mbarriers
    Piece pieces[MAX_STAGES];                // bytes 0: there is no more
    Walk walk;                               // of whole blocks that copy without bulk copies
    u64 ticket;                              // the block's first, or NO_TICKET
};

// has_bulk says whether the launch came with the shared memory that bulk copies need: large calls on sm_90 and later.
__device__ __forceinline__ bool has_bulk() {
#if __CUDA_ARCH__ >= 900
    return dynamic_shared_bytes() >= BULK_SHARED;
#else
    return false;
#endif
}

#if __CUDA_ARCH__ >= 900

extern __shared__ __align__(128) u8 ring[];

// pipe_start makes the barriers: a stage is empty when consumers warps have read it. ticket is thread 0's. All threads call it.
__device__ void pipe_start(Pipe &pipe, u32 consumers, u64 ticket) {
    if (threadIdx.x == 0) {
        pipe.ticket = ticket;
        for (u32 i = 0; i < MAX_STAGES; i++) {
            barrier_init(&pipe.full[i], 1);
            barrier_init(&pipe.empty[i], consumers);
        }
        barrier_init_fence();
    }
    __syncthreads();
    bulk_fence();
}

// store_piece copies a piece from shared memory to all its destinations, but not onto itself.
__device__ __forceinline__ void store_piece(const Shared &sh, const Piece &p, u32 rank, u32 size, const u8 *from,
                                            const u8 *source, u64 policy) {
    DELAY();
    for (u32 k = 0; k < p.numDst; k++) {
        u8 *to = target(sh, p, destination(p, rank, size, k));
        if (to != source)
            bulk_store(to, from, p.bytes, policy);
    }
    bulk_commit();
}

// bulk_copy moves chunks: a thread that finds and loads them, and a thread of another warp that stores them. That one gives back
// a stage when LAG later pieces are on their way to their places too, or, among the last pieces, one.
__device__ __noinline__ void bulk_copy(const Args &a, Shared &sh, Pipe &pipe, u64 ticket) {
    const u32 STAGES = COPY_STAGES, LAG = STAGES / 2;
    pipe_start(pipe, 1, ticket);
    const u64 policy = streaming();
    if (threadIdx.x == 32) {
        Walk w;
        walk_start(a, sh, w, COPY_CHUNK, pipe.ticket);
        bool last = false; // the piece before was among the last
        for (u32 n = 0;; n++) {
            u32 s = n % STAGES, free = last ? n - 2 : n - STAGES;
            Piece p;
            u64 now = w.next;
            bool more = walk_next(a, sh, w, p);
            if (free < n)
                barrier_wait(&pipe.empty[free % STAGES], free / STAGES & 1);
            last = more && walk_ends(a, w, now);
            p.last = last;
            if (!more)
                p.bytes = 0;
            pipe.pieces[s] = p;
            if (!more) {
                barrier_arrive(&pipe.full[s]);
                return;
            }
            barrier_expect(&pipe.full[s], p.bytes);
            if (w.visits > 1)
                bulk_load(ring + s * COPY_CHUNK, source(sh, p, p.src), p.bytes, &pipe.full[s]);
            else
                bulk_load(ring + s * COPY_CHUNK, source(sh, p, p.src), p.bytes, &pipe.full[s], policy);
        }
    }
    if (threadIdx.x != 0)
        return;
    const u32 rank = a.ctl->rank, size = a.ctl->size;
    for (u32 n = 0, given = 0;; n++) {
        u32 s = n % STAGES;
        barrier_wait(&pipe.full[s], n / STAGES & 1);
        const Piece p = pipe.pieces[s];
        if (p.bytes == 0)
            break;
        store_piece(sh, p, rank, size, ring + s * COPY_CHUNK, source(sh, p, p.src), policy);
        u32 lag = p.last ? 1 : LAG;
        if (p.last)
            bulk_read<1>();
        else
            bulk_read<LAG>();
        for (; given + lag <= n; given++)
            barrier_arrive(&pipe.empty[given % STAGES]);
    }
    bulk_complete();
}

// bulk_feed is the loading warp of a reduction: its first lane finds chunks, every lane loads from a rank.
__device__ __noinline__ void bulk_feed(const Args &a, Shared &sh, Pipe &pipe, u32 stages, u32 chunk) {
    const u32 lane = threadIdx.x & 31;
    Walk w;
    if (lane == 0)
        walk_start(a, sh, w, chunk, pipe.ticket);
    const u32 size = a.ctl->size;
    for (u32 n = 0;; n++) {
        u32 s = n % stages;
        if (lane == 0) {
            Piece p;
            u64 now = w.next;
            if (!walk_next(a, sh, w, p))
                p.bytes = 0;
            u32 free = n - (p.bytes != 0 && walk_ends(a, w, now) ? 2 : stages);
            if (free < n)
                barrier_wait(&pipe.empty[free % stages], free / stages & 1);
            pipe.pieces[s] = p;
            if (p.bytes == 0)
                barrier_arrive(&pipe.full[s]);
            else
                barrier_expect(&pipe.full[s], p.bytes * size);
        }
        __syncwarp();
        const Piece &p = pipe.pieces[s];
        if (p.bytes == 0)
            return;
        if (lane < size)
            bulk_load(ring + (s * size + lane) * chunk, source(sh, p, lane), p.bytes, &pipe.full[s]);
        __syncwarp();
    }
}

// add_unit adds up 16 bytes of all ranks, in rank order.
template <class N> __device__ __forceinline__ uint4 add_unit(const u8 *in, u32 chunk, u32 size, bool avg) {
    typedef typename N::Raw Raw;
    const int W = 16 / sizeof(Raw);
    float acc[W] = {};
    for (u32 i = 0; i < size; i += 8) {
        union { uint4 q; Raw x[W]; } v[8];
#pragma unroll
        for (u32 k = 0; k < 8; k++)
            if (i + k < size)
                v[k].q = *(const uint4 *)(in + (i + k) * chunk);
#pragma unroll
        for (u32 k = 0; k < 8; k++)
            if (i + k < size)
#pragma unroll
                for (int j = 0; j < W; j++)
                    acc[j] = plus(acc[j], N::up(v[k].x[j]));
    }
    union { uint4 q; Raw x[W]; } out;
#pragma unroll
    for (int j = 0; j < W; j++)
        out.x[j] = N::down(avg ? over(acc[j], size) : acc[j]);
    return out.q;
}

// bulk_sum reduces chunks: the last warp loads, the others add up, one thread of them stores.
template <class N> __device__ __noinline__ void bulk_sum(const Args &a, Shared &sh, Pipe &pipe, u64 ticket) {
    const u32 t = threadIdx.x, adders = blockDim.x - 32, size = a.ctl->size, rank = a.ctl->rank;
    const u32 chunk = reduce_chunk(size), stages = min(MAX_STAGES, RING / (chunk * size));
    const bool avg = a.reduce == AVG;
    pipe_start(pipe, adders / 32, ticket);
    if (t >= adders) {
        bulk_feed(a, sh, pipe, stages, chunk);
        return;
    }
    const u64 policy = streaming();
    for (u32 n = 0;; n++) {
        u32 s = n % stages;
        barrier_wait(&pipe.full[s], n / stages & 1);
        Piece p = pipe.pieces[s];
        if (p.bytes == 0)
            break;
        const u8 *in = ring + s * size * chunk;
        u8 *out = ring + RING + n % OUTS * OUT_BYTES;
        if (t == 0)
            bulk_read<OUTS - 1>(); // what was stored from this place has been read
        sync_some<1>(adders);
        for (u32 i = t * 16; i < p.bytes; i += adders * 16)
            *(uint4 *)(out + i) = add_unit<N>(in + i, chunk, size, avg);
        __syncwarp();
        if ((t & 31) == 0)
            barrier_arrive(&pipe.empty[s]);
        bulk_fence_shared();
        sync_some<2>(adders);
        if (t == 0)
            store_piece(sh, p, rank, size, out, 0, policy);
    }
    if (t == 0)
        bulk_complete();
}
#endif
