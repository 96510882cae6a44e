// What has no payload or one peer: barrier, send, recv, leaving, and copies in one rank's address space.

// weft_barrier: the first meeting is all of it. One block.
extern "C" __global__ void __launch_bounds__(THREADS, 1) weft_barrier(const __grid_constant__ Args a) {
    __shared__ Shared sh;
    follow();
    if (begin(a, sh, next_epoch(a)) != LEAVE)
        finish(a, sh, true);
}

// weft_barriers meets a.peer times in one launch; it measures what a meeting costs inside a kernel.
extern "C" __global__ void __launch_bounds__(THREADS, 1) weft_barriers(const __grid_constant__ Args a) {
    __shared__ Shared sh;
    follow();
    u64 e = next_epoch(a);
    for (u32 i = 0; i < a.peer; i++, e++)
        if (begin(a, sh, e) != GO)
            return;
    finish(a, sh, true);
}

__device__ bool same_shapes(const Entry &s, const Entry &r) {
    bool same = s.numParts == r.numParts;
    for (u32 p = 0; same && p < s.numParts; p++)
        same = s.parts[p].srcRows == r.parts[p].dstRows && s.parts[p].cols == r.parts[p].cols &&
               s.parts[p].dtype == r.parts[p].dtype;
    return same;
}

// weft_send: one block writes its entry to the receiver and waits for the answer, after which the source is free.
extern "C" __global__ void __launch_bounds__(THREADS, 1) weft_send(const __grid_constant__ Args a) {
    __shared__ Shared sh;
    follow();
    Ctl *c = a.ctl;
    u64 e = c->sent[a.peer] + 1;
    stage(a, sh);
    push(a, sh, &c->peers[a.peer]->letters[c->rank], threadIdx.x, blockDim.x);
    __syncthreads();
    u32 why = 0;
    if (threadIdx.x == 0) {
        DELAY();
        store_release(&c->peers[a.peer]->mail[c->rank], e);
        why = spin(c, &c->ack[a.peer], e, &c->closed[2][a.peer]);
    }
    if (__syncthreads_or(why) && gave_up(c, a, sh, why, a.peer, e, c->ack, 2)) {
        if (threadIdx.x == 0)
            c->launches += WHOLE;
        return;
    }
    if (threadIdx.x == 0) {
        u64 answer = load_relaxed(&c->answers[a.peer]);
        if (answer & 1) {
            Record r = record(DISAGREE, c->rank, a.peer, 0, 0);
            r.epochSeen = a.entry.call;
            r.otherCall = answer >> 1;
            report(c, a, r);
        }
        c->sent[a.peer] = e;
        c->launches += WHOLE;
    }
}

// weft_recv: pulls the sender's data and answers.
extern "C" __global__ void __launch_bounds__(THREADS, 1) weft_recv(const __grid_constant__ Args a) {
    __shared__ Shared sh;
    follow();
    Ctl *c = a.ctl;
    u32 t = threadIdx.x;
    u64 e = c->received[a.peer] + 1;
    u32 why = t == 0 ? spin(c, &c->mail[a.peer], e, &c->closed[1][a.peer]) : 0;
    if (__syncthreads_or(why) && gave_up(c, a, sh, why, a.peer, e, c->mail, 2)) {
        abandon(a, sh);
        return;
    }
    const Entry &letter = c->letters[a.peer];
    bool same = same_shapes(letter, a.entry);
    for (u32 p = 0; same && p < a.entry.numParts; p++) {
        const Part &own = a.entry.parts[p], &from = letter.parts[p];
        copy_rows((u8 *)own.dst, own.dstStride, (const u8 *)(from.src + c->shift[a.peer]), from.srcStride, own.dstRows, row_bytes(own), everyone());
    }
    if (!last_block(a, sh, true) || t != 0)
        return;
    if (!same) {
        Record r = record(DISAGREE, a.peer, c->rank, 0, 0);
        r.epochSeen = letter.call;
        r.otherCall = a.entry.call;
        report(c, a, r);
    }
    c->doneBlocks = 0;
    c->received[a.peer] = e;
    c->launches += WHOLE;
    store_relaxed(&c->peers[a.peer]->answers[c->rank], (u64)a.entry.call << 1 | !same);
    DELAY();
    store_release(&c->peers[a.peer]->ack[c->rank], e);
}

// weft_leave tells all peers that this rank is in no later meeting. One block; it waits for nobody.
extern "C" __global__ void __launch_bounds__(THREADS, 1) weft_leave(const __grid_constant__ Args a) {
    follow();
    Ctl *c = a.ctl;
    u32 t = threadIdx.x;
    if (t >= c->size || t == c->rank)
        return;
    Ctl *peer = c->peers[t];
    store_release(&peer->closed[0][c->rank], c->epoch / WHOLE + 1);
    store_release(&peer->closed[1][c->rank], c->sent[t] + 1);
    store_release(&peer->closed[2][c->rank], c->received[t] + 1);
}

// weft_memory copies rows in one rank's address space, pinned host memory included.
extern "C" __global__ void __launch_bounds__(THREADS, 1) weft_memory(const __grid_constant__ MemoryArgs a) {
    follow();
    copy_rows((u8 *)a.dst, a.dstStride, (const u8 *)a.src, a.srcStride, a.rows, a.bytes, everyone());
}
