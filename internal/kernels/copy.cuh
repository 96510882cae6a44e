// Copies of rows of bytes: the widest unit that alignment allows, several loads in flight for each thread.

// Team is the threads that share one segment.
struct Team {
    u32 id, size;
};

// everyone is all threads of the launch.
__device__ __forceinline__ Team everyone() {
    Team t = {blockIdx.x * blockDim.x + threadIdx.x, gridDim.x * blockDim.x};
    return t;
}

// small is the bytes up to which a segment gets its share of the warps instead of all: segments then run side by side.
#define SMALL (64 << 10)

// team_of splits the launch's warps over num segments; segment k's threads get their place in it, others size 0.
__device__ __forceinline__ Team team_of(u32 k, u32 num) {
    u32 warp = blockIdx.x + threadIdx.x / 32 * gridDim.x, warps = gridDim.x * (blockDim.x / 32);
    if (warps < num)
        return everyone();
    u32 mine = (warps - k + num - 1) / num;
    Team t = {warp / num * 32 + (threadIdx.x & 31), warp % num == k ? mine * 32 : 0};
    return t;
}

// copy_units copies rows of per units of V. V's alignment holds for everything.
template <class V>
__device__ void copy_units(u8 *dst, i64 dstStride, const u8 *src, i64 srcStride, u64 rows, u64 per, Team team) {
    const int UNROLL = 8;
    if (rows == 1) {
        V *d = (V *)dst;
        const V *s = (const V *)src;
        u64 i = team.id, step = team.size;
        for (; i + (UNROLL - 1) * step < per; i += UNROLL * step) {
            V v[UNROLL];
#pragma unroll
            for (int k = 0; k < UNROLL; k++)
                v[k] = load_stream(s + i + k * step);
            DELAY();
#pragma unroll
            for (int k = 0; k < UNROLL; k++)
                d[i + k * step] = v[k];
        }
        for (; i < per; i += step)
            d[i] = load_stream(s + i);
        return;
    }
    // Rows with gaps: the row and the unit in it advance without a division per unit.
    u64 row = team.id / per, at = team.id % per, stepRows = team.size / per, stepAt = team.size % per;
    while (row < rows) {
        V v[4];
        u8 *to[4];
#pragma unroll
        for (int k = 0; k < 4; k++) {
            to[k] = 0;
            if (row < rows) {
                v[k] = load_stream((const V *)(src + row * srcStride) + at);
                to[k] = dst + row * dstStride + at * sizeof(V);
            }
            row += stepRows;
            at += stepAt;
            if (at >= per) {
                at -= per;
                row++;
            }
        }
        DELAY();
#pragma unroll
        for (int k = 0; k < 4; k++)
            if (to[k])
                *(V *)to[k] = v[k];
    }
}

// copy_rows copies rows of bytes with the widest unit that alignment allows.
__device__ void copy_rows(u8 *dst, i64 dstStride, const u8 *src, i64 srcStride, u64 rows, u64 bytes, Team team) {
    if (rows == 0 || bytes == 0 || team.size == 0 || (dst == src && dstStride == srcStride))
        return;
    if (dstStride == (i64)bytes && srcStride == (i64)bytes) {
        bytes *= rows;
        rows = 1;
    }
    u64 align = (u64)dst | (u64)src;
    if (rows > 1)
        align |= (u64)dstStride | (u64)srcStride;
    u32 unit = align & 1 ? 1 : align & 2 ? 2 : align & 4 ? 4 : align & 8 ? 8 : 16;
    u64 per = bytes / unit, rest = bytes % unit;
    if (per > 0) {
        switch (unit) {
        case 16: copy_units<uint4>(dst, dstStride, src, srcStride, rows, per, team); break;
        case 8: copy_units<uint2>(dst, dstStride, src, srcStride, rows, per, team); break;
        case 4: copy_units<u32>(dst, dstStride, src, srcStride, rows, per, team); break;
        case 2: copy_units<u16>(dst, dstStride, src, srcStride, rows, per, team); break;
        default: copy_units<u8>(dst, dstStride, src, srcStride, rows, per, team);
        }
    }
    if (rest > 0)
        copy_units<u8>(dst + per * unit, dstStride, src + per * unit, srcStride, rows, rest, team);
}
