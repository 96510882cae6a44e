// The index of what came to fixed places, from heads and notes: see lowlatency.cuh, and lowdispatch.cu for the kernel.

// A note's word: the expert's number at its rank, and the choice's order among the source's choices of it. NOWHERE: not there.
#define NOWHERE ~0u

// low_places makes of the heads in base [numRanks, numLocal] each source's first slot of each expert. A whole block.
__device__ __noinline__ void low_places(const Experts &x, LowBlock &lb, u32 *base, u32 *total, u32 *offset) {
    u32 t = threadIdx.x, n = x.numLocal;
    if (t == 0) {
        lb.rows[0] = 0;
        for (u32 i = 0; i < x.numRanks; i++)
            lb.rows[i + 1] += lb.rows[i];
    }
    for (u32 l = t; l < n; l += blockDim.x) {
        u32 sum = 0;
        for (u32 i = 0; i < x.numRanks; i++) {
            u32 v = base[i * n + l];
            base[i * n + l] = sum;
            sum += v;
        }
        total[l] = sum;
    }
    __syncthreads();
    if (t < 32) {
        u32 sum = 0;
        for (u32 i = 0; i < n; i += 32) {
            u32 all, before = warp_sum_before(i + t < n ? padded(total[i + t], x.alignment) : 0, all);
            if (i + t < n)
                offset[i + t] = sum + before;
            sum += all;
        }
        if (t == 0)
            offset[n] = sum;
    }
    __syncthreads();
    for (u32 i = t; i < x.numRanks * n; i += blockDim.x)
        base[i] += offset[i % n];
    __syncthreads();
}

// low_index makes the index of the notes, a thread for each choice of each row, and waits for the rows. It returns to each thread why it
// gave up, and on whom.
__device__ u32 low_index(const LowDispatchArgs &p, const LowBlock &lb, const u32 *base, u32 &from) {
    const DispatchArgs &d = p.d;
    const Experts &x = d.ex.experts;
    const Low &w = p.low;
    u64 mine = d.ex.peers[x.rank];
    u32 topK = x.topK, all = lb.rows[x.numRanks], id = blockIdx.x * blockDim.x + threadIdx.x, step = gridDim.x * blockDim.x, why;
    for (u32 i = id; i < all * topK; i += step) {
        u32 n = quotient(i, x.inverseTopK), k = i - n * topK, src = 0;
        while (n >= lb.rows[src + 1])
            src++;
        u32 row = src * d.ex.maxTokens + n - lb.rows[src];
        Line v;
        if ((why = wait_line(d.meet, d.ex, w, (const Line *)(mine + w.notes) + (u64)row * (1 + topK) + 1 + k, v, lb.call, src, 0, 0)) != 0) {
            from = src;
            return why;
        }
        int slot = -1;
        if (v.a != NOWHERE) {
            slot = base[src * x.numLocal + (v.a & 0xffff)] + (v.a >> 16);
            ((int *)(mine + d.bank.row))[slot] = row;
            ((int *)(mine + d.bank.k))[slot] = k;
            ((u32 *)(mine + d.bank.weight))[slot] = v.b;
        }
        ((int *)(mine + d.bank.slot))[row * topK + k] = slot;
    }
    for (u32 i = id; i < all; i += step) {
        u32 src = 0;
        while (i >= lb.rows[src + 1])
            src++;
        const u64 *flag = word_of(mine, w.landed) + src * d.ex.maxTokens + i - lb.rows[src];
        if ((why = wait_word(d.meet, d.ex, w, flag, lb.call, src, 0, 0)) != 0) {
            from = src;
            return why;
        }
    }
    return 0;
}
