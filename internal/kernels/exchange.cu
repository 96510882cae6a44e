// alltoallv: pulled by the receiver. Where all ranks share a GPU and one receives much more than the others, the matrix is cut
// into equal slices as a gathered result is. Bytes: read once, written once.

// matrix_fault is what is wrong with the rows that rank i sends to rank j: 0, or a reason.
__device__ u32 matrix_fault(const Entry *entries, u32 i, u32 j) {
    const Entry &from = entries[i], &to = entries[j];
    int n = from.send[j];
    if (!(from.hostCounts & 1) && (n < 0 || (u32)n > from.sendLimit))
        return SEND_RANGE;
    if (to.hostCounts & 2)
        return to.recv[i] != n ? EXPECTED : 0;
    return (u32)n > to.recvLimit ? TAKES : 0;
}

// matrix_plan checks what all ranks send to all and fills sh.rows with the prefix sums of what this rank receives.
__device__ bool matrix_plan(const Args &a, Shared &sh) {
    Ctl *c = a.ctl;
    const Entry *entries = sh.entries;
    u32 t = threadIdx.x, size = c->size;
    __syncthreads(); // begin has read sh.bad
    if (t == 0) {
        sh.bad = ~0u;
        sh.total = 0;
    }
    __syncthreads();
    for (u32 k = t; k < size * size; k += blockDim.x)
        if (matrix_fault(entries, k / size, k % size))
            blame(sh, k);
    __syncthreads();
    u32 bad = sh.bad;
    if (bad != ~0u) {
        u32 i = bad / size, j = bad % size, why = matrix_fault(entries, i, j);
        i64 limit = why == SEND_RANGE ? entries[i].sendLimit : why == EXPECTED ? entries[j].recv[i] : entries[j].recvLimit;
        report_once(a, record(why, i, j, entries[i].send[j], limit));
        return false;
    }
    __syncthreads(); // all have read sh.bad
    if (t < size) {
        i64 sum = 0;
        for (u32 j = 0; j < size; j++)
            sum += entries[t].send[j];
        atomicAdd(&sh.total, (u64)sum);
        for (u32 p = 0; p < entries[t].numParts; p++)
            if (entries[t].parts[p].srcRows < sum)
                blame(sh, t * MAX_PARTS + p);
    }
    if (t == 0) {
        int sum = 0;
        for (u32 i = 0; i < size; i++) {
            sh.rows[i] = sum;
            sum += entries[i].send[c->rank];
        }
        sh.rows[size] = sum;
    }
    __syncthreads();
    bad = sh.bad;
    if (bad != ~0u) {
        u32 i = bad / MAX_PARTS;
        i64 sum = 0;
        for (u32 j = 0; j < size; j++)
            sum += entries[i].send[j];
        report_once(a, record(SRC_SEND, i, i, sum, entries[i].parts[bad % MAX_PARTS].srcRows));
        return false;
    }
    if (a.all && blockIdx.x == 0 && t < size)
        ((int *)a.all)[t] = sh.rows[t + 1] - sh.rows[t];
    return true;
}

// skewed says whether a rank receives so much more than the average that the others should help. Alike on all ranks.
__device__ bool skewed(const Args &a, const Shared &sh) {
    const Ctl *c = a.ctl;
    const Entry *entries = sh.entries;
    u64 most = 0, sum = 0;
    for (u32 j = 0; (a.shared & 1) && j < c->size; j++) {
        u64 rows = 0;
        for (u32 i = 0; i < c->size; i++)
            rows += entries[i].send[j];
        most = max(most, rows);
        sum += rows;
    }
    return most * c->size * 8 > sum * 9;
}

// exchange_slices moves this rank's equal share of the whole matrix, receivers first, whoever's rows they are.
__device__ void exchange_slices(const Args &a, Shared &sh, Move &m) {
    Ctl *c = a.ctl;
    const Entry *entries = sh.entries;
    u32 size = c->size;
    for (u32 p = 0; p < a.entry.numParts; p++) {
        prepare(a, sh, m, p);
        u64 per = m.bytes >> m.shift, lo, hi, rows = 0;
        for (u32 k = 0; k < size * size; k++)
            rows += entries[k / size].send[k % size];
        slice(rows * per, c->rank, size, lo, hi);
        u64 at = 0; // units before the segment
        for (u32 j = 0; j < size; j++) {
            i64 dstRow = 0;
            for (u32 i = 0; i < size; i++) {
                u64 units = entries[i].send[j] * per;
                u64 from = max(lo, at), to = min(hi, at + units);
                if (from < to) {
                    i64 srcRow = 0;
                    for (u32 k = 0; k < j; k++)
                        srcRow += entries[i].send[k];
                    const Part &src = entries[i].parts[p], &dst = entries[j].parts[p];
                    __syncthreads();
                    if (threadIdx.x == 0) {
                        m.numDst = 1;
                        m.dst[0] = (u8 *)dst.dst + dstRow * dst.dstStride;
                        m.dstStride[0] = dst.dstStride;
                    }
                    __syncthreads();
                    move_range(m, (const u8 *)src.src + srcRow * src.srcStride, src.srcStride, from - at, to - at);
                }
                at += units;
                dstRow += entries[i].send[j];
            }
        }
    }
}

__device__ void exchange(const Args &a, Shared &sh) {
    Ctl *c = a.ctl;
    const Entry *entries = sh.entries;
    u32 size = c->size;
    for (u32 p = 0; p < a.entry.numParts; p++) {
        const Part &own = a.entry.parts[p];
        u64 bytes = row_bytes(own);
        bool all = (u64)sh.rows[size] * bytes > (u64)SMALL * size;
        for (u32 k = 0; k < size; k++) {
            u32 i = c->rank + k < size ? c->rank + k : c->rank + k - size;
            const Part &from = entries[i].parts[p];
            i64 before = 0;
            for (u32 j = 0; j < c->rank; j++)
                before += entries[i].send[j];
            copy_rows((u8 *)own.dst + sh.rows[i] * own.dstStride, own.dstStride,
                      (const u8 *)from.src + before * from.srcStride, from.srcStride, sh.rows[i + 1] - sh.rows[i], bytes,
                      all ? everyone() : team_of(k, size));
        }
    }
}

// flow moves a large call without gaps in chunks, whatever it is, or says that it cannot.
__device__ bool flow(const Args &a, Shared &sh, Pipe &pipe, u64 ticket) {
    u32 how = flows(a, sh);
    if (how == NO_FLOW)
        return false;
#if __CUDA_ARCH__ >= 900
    if (how == FLOWS_EVEN && has_bulk()) {
        bulk_copy(a, sh, pipe, ticket);
        return true;
    }
#endif
    flow_copy(a, sh, pipe.walk, pipe.pieces[0], COPY_CHUNK, ticket);
    return true;
}

// weft_copy: all_gather, all_gatherv, alltoallv, broadcast.
extern "C" __global__ void __launch_bounds__(THREADS, 1) weft_copy(const __grid_constant__ Args a) {
    __shared__ Shared sh;
    __shared__ Move m;
    __shared__ Pipe pipe;
    follow();
    int state = begin(a, sh, next_epoch(a));
    if (state == LEAVE)
        return;
    if (state == GO) {
        u64 ticket = first_ticket(a, sh, has_bulk());
        if (a.kind == BROADCAST) {
            if (!flow(a, sh, pipe, ticket))
                broadcast(a, sh, m);
        } else if (a.kind == ALL_TO_ALLV) {
            if (matrix_plan(a, sh) && !flow(a, sh, pipe, ticket)) {
                if (skewed(a, sh))
                    exchange_slices(a, sh, m);
                else
                    exchange(a, sh);
            }
        } else if (gather_plan(a, sh) && !flow(a, sh, pipe, ticket)) {
            gather(a, sh, m);
        }
    }
    finish(a, sh, state == FAULT);
}
