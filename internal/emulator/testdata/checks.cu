// Kernels that check the engine from inside. Launch: any grid whose blocks all run at once, blocks of 32 x 7 threads.
// faults[0] counts what was wrong, faults[1] is a line; words begins as 0.

#define CHECK(is)                                                                                                              \
    do                                                                                                                         \
        if (!(is)) {                                                                                                           \
            atomicAdd(&faults[0], 1u);                                                                                         \
            faults[1] = __LINE__;                                                                                              \
        }                                                                                                                      \
    while (0)

#define T 224u
__device__ u32 me() { return threadIdx.y * 32 + threadIdx.x; }

extern "C" __global__ void __launch_bounds__(224, 1) places(u32 *faults, u64 *words) {
    CHECK(blockDim.x == 32 && blockDim.y == 7 && blockDim.z == 1 && threadIdx.x < 32 && threadIdx.y < 7 && threadIdx.z == 0);
    CHECK(blockIdx.x < gridDim.x && blockIdx.y == 0);
    atomicAdd(&words[blockIdx.x * T + me()], 1ull);
    __syncthreads();
    for (u32 i = 0; i < T; i++)
        CHECK(words[blockIdx.x * T + i] == 1);
}

extern "C" __global__ void barriers(u32 *faults, u64 *words) {
    __shared__ u32 seen[T];
    u32 t = me();
    for (u32 i = 0; i < 20; i++) {
        seen[t] = i;
        __syncthreads();
        CHECK(seen[(t * 5 + i) % T] == i);
        CHECK(__syncthreads_count(t < i * 10) == (int)min(T, i * 10));
        CHECK(__syncthreads_or(t == i * 16) == (i * 16 < T));
        CHECK(__syncthreads_and(t != i * 16) == (i * 16 >= T));
    }
}

extern "C" __global__ void named(u32 *faults, u64 *words) {
    __shared__ u32 left, right;
    u32 t = me();
    if (t == 0)
        left = right = 0;
    __syncthreads();
    if (t < 128) {
        for (u32 i = 0; i < 30; i++) {
            atomicAdd(&left, 1u);
            sync_some<1>(128);
            CHECK(left == 128 * (i + 1));
            sync_some<1>(128);
        }
    } else {
        for (u32 i = 0; i < 7; i++) {
            atomicAdd(&right, 1u);
            sync_some<2>(96);
            CHECK(right == 96 * (i + 1));
            sync_some<3>(96);
        }
    }
    __syncthreads();
    CHECK(left == 128 * 30 && right == 96 * 7);
}

extern "C" __global__ void leaving(u32 *faults, u64 *words) {
    __shared__ u32 sum;
    u32 t = me();
    if (t == 0)
        sum = 0;
    __syncthreads();
    if (t >= 110 || t == 33) // in the middle of warps, and whole warps
        return;
    for (u32 i = 0; i < 5; i++) {
        atomicAdd(&sum, 1u);
        __syncthreads();
        CHECK(sum == 109 * (i + 1));
        __syncthreads();
        sync_some<4>(128); // four warps, of which lanes have gone
    }
    if (t / 32 == 1) // a warp without one of its lanes
        CHECK(__ballot_sync(~0u, 1) == ~2u);
}

extern "C" __global__ void shuffles(u32 *faults, u64 *words) {
    u32 t = me(), lane = t & 31, base = t - lane;
    for (u32 i = 0; i < 40; i++) {
        CHECK(__shfl_sync(~0u, t, i) == base + (i & 31));
        CHECK(__shfl_sync(~0u, (u64)t << 40, 31 - lane) == (u64)(base + 31 - lane) << 40);
        CHECK(__shfl_up_sync(~0u, t, i & 31) == (lane < (i & 31) ? t : t - (i & 31)));
        CHECK(__shfl_down_sync(~0u, t, i & 31) == (lane + (i & 31) > 31 ? t : t + (i & 31)));
        CHECK(__shfl_xor_sync(~0u, (float)t, i & 31) == (float)(base + (lane ^ (i & 31))));
        CHECK(__shfl_sync(~0u, t, 3, 8) == base + (lane & ~7u) + 3);
        CHECK(__shfl_up_sync(~0u, t, 1, 8) == (lane & 7 ? t - 1 : t));
    }
}

// Lanes of a warp go different ways, with different numbers of operations on each.
extern "C" __global__ void apart(u32 *faults, u64 *words) {
    u32 t = me(), lane = t & 31;
    const u32 odd = 0xaaaaaaaa;
    if (lane & 1) {
        for (u32 i = 0; i < 10; i++) {
            CHECK(__ballot_sync(odd, lane > i) == (odd & ~((2u << i) - 1)));
            CHECK(__match_any_sync(odd, lane / 8) == (0xaau << (lane & ~7u)));
        }
    } else {
        for (u32 i = 0; i < 3; i++) {
            __syncwarp(~odd);
            CHECK(__shfl_sync(~odd, lane, 2 * i) == 2 * i);
        }
    }
    __syncwarp();
    CHECK(__match_any_sync(~0u, 7ull) == ~0u && __all_sync(~0u, lane < 32) && !__any_sync(~0u, lane > 31));
    CHECK(__activemask() >> lane & 1);
}

// A warp loads pieces into a ring by bulk copies, the others take them out.
extern "C" __global__ void ring(u32 *faults, u64 *words) {
    extern __shared__ __align__(128) u8 stages[];
    __shared__ u64 full[3], empty[3];
    const u32 PIECE = 1024, NUM = 50;
    u32 t = me(), warp = t / 32, lane = t & 31;
    u32 *source = (u32 *)(words + blockIdx.x * 16384);
    for (u32 i = t; i < NUM * PIECE / 4; i += T)
        source[i] = i * 3 + blockIdx.x;
    if (t == 0) {
        for (u32 i = 0; i < 3; i++) {
            barrier_init(full + i, 1);
            barrier_init(empty + i, 6);
        }
        barrier_init_fence();
    }
    __syncthreads();
    CHECK(dynamic_shared_bytes() == 4096);
    if (warp == 6) {
        if (lane == 0)
            for (u32 i = 0; i < NUM; i++) {
                if (i >= 3)
                    barrier_wait(empty + i % 3, (i / 3 - 1) & 1);
                barrier_expect(full + i % 3, PIECE);
                bulk_load(stages + i % 3 * PIECE, source + i * PIECE / 4, PIECE / 2, full + i % 3);
                bulk_load(stages + i % 3 * PIECE + PIECE / 2, source + i * PIECE / 4 + PIECE / 8, PIECE / 2, full + i % 3, streaming());
            }
        return;
    }
    for (u32 i = 0; i < NUM; i++) {
        barrier_wait(full + i % 3, i / 3 & 1);
        for (u32 k = t; k < PIECE / 4; k += 192)
            CHECK(((u32 *)(stages + i % 3 * PIECE))[k] == (i * PIECE / 4 + k) * 3 + blockIdx.x);
        __syncwarp();
        if (lane == 0)
            barrier_arrive(empty + i % 3);
    }
}

// Threads store what lies in shared memory, and use the memory again when it has been read.
extern "C" __global__ void stores(u32 *faults, u64 *words) {
    __shared__ __align__(16) u64 mine[T][2];
    u32 t = me();
    u64 *to = words + (blockIdx.x * T + t) * 8;
    for (u32 i = 0; i < 4; i++) {
        mine[t][0] = t + i;
        mine[t][1] = t * i;
        bulk_fence_shared();
        bulk_store(to + i * 2, mine[t], 16);
        bulk_commit();
        bulk_read<0>();
    }
    bulk_complete();
    for (u32 i = 0; i < 4; i++)
        CHECK(to[i * 2] == t + i && to[i * 2 + 1] == (u64)t * i);
}

// Blocks pass a token around, three times.
extern "C" __global__ void token(u32 *faults, u64 *words) {
    u64 *flag = words, *data = words + 1;
    for (u32 lap = 0; lap < 3; lap++) {
        u64 mine = lap * gridDim.x + blockIdx.x;
        if (me() < 3)
            while (load_acquire(flag) < mine)
                ;
        __syncthreads();
        CHECK(*(volatile u64 *)data == mine * 7);
        __syncthreads();
        if (me() == 100) {
            *data = (mine + 1) * 7;
            store_release(flag, mine + 1);
        }
    }
}

extern "C" __global__ void atomics(u32 *faults, u64 *words) {
    u32 t = me(), id = blockIdx.x * T + t, all = gridDim.x * T;
    u64 place = atomicAdd(&words[0], 1ull);
    CHECK(place < all && atomicAdd(&words[16 + place], 1ull) == 0);
    atomicMax(&words[1], (u64)id);
    atomicOr((u32 *)&words[2], 1u << (id & 31));
    u64 old = *(volatile u64 *)&words[3];
    for (u64 now; (now = atomicCAS(&words[3], old, old + 2)) != old; old = now)
        ;
    add_relaxed(&words[4], 5);
    __threadfence();
    if (count_one(&words[5]) == all - 1)
        CHECK(words[0] == all && words[1] == all - 1 && words[2] == ~0u && words[3] == 2ull * all && words[4] == 5ull * all);
}

// Lines from every block to every other: halves match their flags.
extern "C" __global__ void lines(u32 *faults, u64 *words) {
    u32 t = me(), n = gridDim.x;
    for (u32 e = 1; e <= 20; e++) {
        if (t < n)
            store_line(words + ((e & 1) * n * n + t * n + blockIdx.x) * 2, e * 1000 + t, e * 2000 + blockIdx.x, e);
        if (t < n) {
            u32 a, flagA, b, flagB;
            do
                load_line(words + ((e & 1) * n * n + blockIdx.x * n + t) * 2, a, flagA, b, flagB);
            while (flagA != e || flagB != e);
            CHECK(a == e * 1000 + blockIdx.x && b == e * 2000 + t);
        }
        __syncthreads();
    }
}

// Shared memory begins as nonsense, not as zeros, nor as an earlier block left it.
extern "C" __global__ void nonsense(u32 *faults, u64 *words) {
    __shared__ u32 own[16];
    extern __shared__ u32 pool[];
    u32 t = me();
    if (t < 16) {
        CHECK(own[t] == 0xcbcbcbcb);
        CHECK(pool[t] == 0xcdcdcdcd);
    }
    __syncthreads();
    if (t < 16)
        own[t] = pool[t] = 0;
}

extern "C" __global__ void numbers(u32 *faults, u64 *words) {
    for (u32 i = blockIdx.x * T + me(); i < 65536; i += gridDim.x * T) {
        float f = f16_up(i);
        if (f == f) {
            CHECK(f16_down(f) == i);
            float next = f16_up(i + 1), half = (f + next) / 2; // halfway goes to the even one
            if (next == next && fabsf(next) < 1e30f && (i & 0x7fff) != 0x7fff)
                CHECK(f16_down(half) == (i & 1 ? i + 1 : i));
        } else {
            CHECK(f16_down(f) == 0x7fff);
        }
        float g = __uint_as_float(i << 16);
        CHECK(bf16_down(g) == (g == g ? i : 0x7fff));
        if (fabsf(g) < 3e38f) {
            CHECK(bf16_down(__uint_as_float(i << 16 | 0x8000)) == (i & 1 ? i + 1 : i));
            CHECK(bf16_down(__uint_as_float(i << 16 | 0x8001)) == i + 1);
        }
        float small = g == g && fabsf(g) <= 464.f ? g : 0;
        u16 two = e4m3_pair(small, -small);
        CHECK((two & 0x7f) == (two >> 8 & 0x7f) && (two & 0x7f) <= 0x7e);
    }
    CHECK(e4m3_pair(448.f, 449.f) == 0x7e7e && e4m3_pair(1.f, -1e9f) == 0xfe38 && e4m3_pair(0x1p-9f, 0x1p-10f) == 1);
    CHECK(e4m3_pair(__uint_as_float(0x7fc00000), 0x1.8p-9f) == 0x027f && e4m3_pair(17.f, 19.f) == 0x5a58);
    CHECK(min_nan(1.f, __uint_as_float(0x7fc00000)) != min_nan(1.f, 1.f) && max_nan(-0.f, 0.f) == 0 && __float_as_uint(min_nan(0.f, -0.f)) == 0x80000000);
    CHECK(__umulhi(0x80000000u, 6) == 3 && __ffs(8) == 4 && __ffs(0) == 0 && __popc(0xff0) == 8 && fmaxf(__uint_as_float(0x7fc00000), 2.f) == 2);
}

// What follows is wrong, each in a way of its own.
extern "C" __global__ void bad_barrier(u32 *faults, u64 *words) {
    if (me() != 77)
        __syncthreads();
    else
        sync_some<5>(64);
}
extern "C" __global__ void bad_mask(u32 *faults, u64 *words) { __shfl_sync(1u, 5, 0); }
extern "C" __global__ void bad_lanes(u32 *faults, u64 *words) {
    if (threadIdx.x < 16)
        __syncwarp();
    else
        __ballot_sync(~0u, 1);
}
extern "C" __global__ void bad_load(u32 *faults, u64 *words) { faults[2] = load_stream((const uint4 *)(words + 1)).x; }
extern "C" __global__ void bad_count(u32 *faults, u64 *words) { sync_some<1>(me() < 64 ? 96 : 128); }
extern "C" __global__ void bad_copy(u32 *faults, u64 *words) { bulk_store(words + 1, words + 2, 24); }
extern "C" __global__ void bad_early(u32 *faults, u64 *words) {
    __shared__ __align__(16) u64 mine[2];
    bulk_store(words, mine, 16);
    bulk_commit();
}
extern "C" __global__ void bad_vector(u32 *faults, u64 *words) { faults[2] = ((const uint4 *)(faults + 2))->x; }
extern "C" __global__ void bad_shift(u32 *faults, u64 *words) { faults[2] = 1u << (32 + faults[0]); }
extern "C" __global__ void bad_index(u32 *faults, u64 *words) {
    __shared__ u32 few[4];
    few[4 + faults[0]] = 1;
}

// Races: nothing is wrong with what comes out, here.
extern "C" __global__ void bad_shared(u32 *faults, u64 *words) {
    __shared__ u32 sum[T];
    u32 t = me();
    sum[t] = t;
    __syncwarp(); // of other warps it says nothing
    faults[2 + (sum[(t + 32) % T] == 5)] = 0;
}
extern "C" __global__ void bad_flag(u32 *faults, u64 *words) {
    if (gridDim.x < 2)
        return;
    if (blockIdx.x == 0 && me() == 0) {
        while (load_relaxed(words + 10) == 0)
            ; // a block that begins when this one has ended knows what it did
        words[8] = 5;
        store_relaxed(words, 1); // without a fence
    }
    if (blockIdx.x == 1 && me() == 0) {
        store_relaxed(words + 10, 1);
        while (load_acquire(words) == 0)
            ;
        words[9] = words[8];
    }
}
extern "C" __global__ void bad_late(u32 *faults, u64 *words) {
    if (me() == 3)
        words[8 + blockIdx.x] = 5;
    if (me() == 0) { // its fence says nothing of thread 3, which it has not met
        __threadfence();
        count_one(words);
        while (load_acquire(words) < gridDim.x)
            ;
        words[16] = words[8 + (blockIdx.x + 1) % gridDim.x];
    }
}
