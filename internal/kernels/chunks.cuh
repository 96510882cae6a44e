// Large operations on memory without gaps are cut into chunks, which blocks take one after the other by a ticket. Where all
// ranks share a GPU, the tickets are of one counter and any block of any rank may move any chunk: blocks do not run at one
// speed (some multiprocessors share a path to memory), and shares that are equal from the start let the fast ones idle at the
// end. On several GPUs each rank takes chunks of its own share. Of an all-gather or a broadcast that is an equal share of the
// result, wherever it lies: with skewed counts the other ranks fetch pieces of the large source and pass them on to all, so that
// no link carries more than an equal part. How the work is cut is alike on all ranks: it follows from the entries alone.

// On one GPU a copy to many ranks goes to VISIT of them at a time, a stretch of STRETCH chunks after the other: memory takes long
// runs of writes in few places faster than short ones in many, and the stretch is read again from L2.
#define VISIT 2u
#define STRETCH 256u

// FLOW_BYTES is the least bytes, read once, that are cut into chunks: fewer in a build that looks for races.
#ifdef WEFT_DELAYS
#define FLOW_BYTES (64u << 10)
#else
#define FLOW_BYTES (4u << 20)
#endif

// Piece is one chunk: from numSrc ranks (1, or all) to numDst ranks, each at its own part's memory.
struct Piece {
    u64 srcAt, dstAt; // bytes from the first row
    u32 bytes, part;
    u16 src, numSrc, dst, numDst;
    bool last; // among the last of the call
};

__device__ __forceinline__ u32 num_segments(const Args &a, u32 size) {
    switch (a.kind) {
    case ALL_REDUCE:
    case REDUCE:
    case BROADCAST: return 1;
    case ALL_TO_ALLV: return size * size;
    default: return size;
    }
}

// segment is a run of bytes without gaps in its sources and in its destinations. p.bytes is not set.
__device__ u64 segment(const Args &a, const Shared &sh, u32 part, u32 seg, Piece &p) {
    const Entry *entries = sh.entries;
    const u32 size = a.ctl->size;
    const Part &own = a.entry.parts[part];
    const u64 row = row_bytes(own);
    Piece all = {0, 0, 0, part, 0, (u16)size, 0, (u16)size};
    p = all;
    switch (a.kind) {
    case ALL_REDUCE: return own.srcRows * row;
    case REDUCE: p.dst = a.peer, p.numDst = 1; return own.srcRows * row;
    case BROADCAST: p.src = a.peer, p.numSrc = 1; return entries[a.peer].parts[part].srcRows * row;
    case ALL_TO_ALLV: {
        u32 j = seg / size, i = seg - j * size;
        for (u32 k = 0; k < j; k++)
            p.srcAt += entries[i].send[k];
        for (u32 k = 0; k < i; k++)
            p.dstAt += entries[k].send[j];
        p.srcAt *= row;
        p.dstAt *= row;
        p.src = i, p.numSrc = 1, p.dst = j, p.numDst = 1;
        return entries[i].send[j] * row;
    }
    case ALL_GATHER:
    case ALL_GATHERV: p.src = seg, p.numSrc = 1, p.dstAt = sh.rows[seg] * row; break;
    default: p.dst = seg, p.numDst = 1, p.srcAt = sh.rows[seg] * row;
    }
    return (sh.rows[seg + 1] - sh.rows[seg]) * row;
}

enum { NO_FLOW, FLOWS, FLOWS_EVEN };

// call_bytes is what the call reads once, over all ranks.
__device__ u64 call_bytes(const Args &a, const Shared &sh) {
    u64 sum = 0;
    for (u32 p = 0; p < a.entry.numParts; p++) {
        const Part &own = a.entry.parts[p];
        u64 rows = sh.rows[a.ctl->size]; // of the gathering and the scattering forms
        if (a.kind == ALL_REDUCE || a.kind == REDUCE)
            rows = own.srcRows;
        else if (a.kind == BROADCAST)
            rows = sh.entries[a.peer].parts[p].srcRows;
        else if (a.kind == ALL_TO_ALLV)
            rows = sh.total;
        sum += rows * row_bytes(own);
    }
    return sum;
}

// flows says whether the call is cut into chunks, and then whether everything is aligned to 16 bytes. All threads call it.
__device__ u32 flows(const Args &a, Shared &sh) {
    if (call_bytes(a, sh) < FLOW_BYTES)
        return NO_FLOW;
    const u32 size = a.ctl->size, parts = a.entry.numParts, n = num_segments(a, size);
    bool dense = true, even = true;
    for (u32 i = threadIdx.x; i < size * parts; i += blockDim.x) {
        const Part &p = sh.entries[i / parts].parts[i % parts];
        i64 row = row_bytes(p);
        dense = dense && (p.srcRows <= 1 || p.srcStride == row) && (p.dstRows <= 1 || p.dstStride == row);
        even = even && ((p.src | p.dst) & 15) == 0;
    }
    for (u32 i = threadIdx.x; i < n * parts; i += blockDim.x) {
        Piece p;
        u64 bytes = segment(a, sh, i / n, i % n, p);
        even = even && ((p.srcAt | p.dstAt | bytes) & 15) == 0;
    }
    if (!__syncthreads_and(dense))
        return NO_FLOW;
    return __syncthreads_and(even) ? FLOWS_EVEN : FLOWS;
}

// Walk is one thread's way through the chunks, in the order of tickets.
struct Walk {
    u64 *tickets;
    u64 next;              // a ticket that is on its way
    u64 base, lo, num;     // tickets before this part; this rank's first chunk of the part, and how many
    u64 first, end, bytes; // tickets before the segment and up to its end; its bytes
    u32 visits, chunks;    // tickets of each chunk, in copies to many ranks; chunks of the segment
    u32 part, seg, numSeg, numParts, chunk, rank, size;
    Piece head; // the segment's beginning
};

// enter_segment begins segment w.seg.
__device__ void enter_segment(const Args &a, const Shared &sh, Walk &w) {
    w.bytes = segment(a, sh, w.part, w.seg, w.head);
    w.first = w.end;
    w.chunks = (w.bytes + w.chunk - 1) / w.chunk;
    w.end += (u64)w.chunks * w.visits;
}

// enter_part begins part w.part.
__device__ void enter_part(const Args &a, const Shared &sh, Walk &w) {
    w.seg = 0;
    w.end = w.lo = 0;
    w.num = ~0ull;
    if (w.part == w.numParts)
        return;
    if (!(a.shared & 1)) { // a receiver's own chunks, or an equal share
        u64 all = 0, before = 0, mine = 0;
        for (u32 i = 0; i < w.numSeg; i++) {
            Piece p;
            u64 chunks = (segment(a, sh, w.part, i, p) + w.chunk - 1) / w.chunk * w.visits;
            all += chunks;
            if (i / w.size < w.rank)
                before += chunks;
            else if (i / w.size == w.rank)
                mine += chunks;
        }
        if (a.kind == ALL_TO_ALLV) {
            w.lo = before;
            w.num = mine;
        } else {
            slice(all, w.rank, w.size, w.lo, w.num);
            w.num -= w.lo;
        }
    }
    enter_segment(a, sh, w);
}

__device__ __forceinline__ u64 *tickets_of(const Args &a, const Shared &sh) {
    Ctl *c = a.ctl;
    return &(a.shared & 1 ? c->peers[0] : c)->tickets[sh.epoch & 1];
}

// NO_TICKET, or what first_ticket returned.
#define NO_TICKET ~0ull

// first_ticket takes the block's first ticket, in thread 0, before it is known whether the call is cut into chunks: its answer
// travels meanwhile. Only where the launch brings what large calls need, after the first meeting. If the call is cut, the
// block's walk must begin with it; if not, no block looks at tickets, and finish sets them back.
__device__ __forceinline__ u64 first_ticket(const Args &a, const Shared &sh, bool large) {
    return large && threadIdx.x == 0 ? atomicAdd(tickets_of(a, sh), 1ull) : NO_TICKET;
}

// walk_start begins a walk, with a ticket that the block has or with the next one.
__device__ void walk_start(const Args &a, const Shared &sh, Walk &w, u32 chunk, u64 ticket) {
    Ctl *c = a.ctl;
    w.tickets = tickets_of(a, sh);
    w.next = ticket != NO_TICKET ? ticket : atomicAdd(w.tickets, 1ull);
    w.rank = c->rank;
    w.size = c->size;
    w.part = 0;
    w.numParts = a.entry.numParts;
    w.numSeg = num_segments(a, w.size);
    bool spread = (a.shared & 1) && (a.kind == ALL_GATHER || a.kind == ALL_GATHERV || a.kind == BROADCAST);
    w.visits = spread ? (w.size + VISIT - 1) / VISIT : 1;
    w.base = 0;
    w.chunk = chunk;
    enter_part(a, sh, w);
}

// DRAIN blocks' tickets before the end, blocks stop to load far ahead: one that is slow would hold as many chunks then as one that
// is fast, and all would wait for it. 0: never.
#ifndef DRAIN
#define DRAIN 4u
#endif

// walk_ends says whether the chunk that walk_next has found is among the last. Where ranks have shares of their own, never.
__device__ __forceinline__ bool walk_ends(const Args &a, const Walk &w, u64 ticket) {
    return DRAIN > 0 && (a.shared & 1) && w.part + 1 == w.numParts && w.seg + 1 == w.numSeg &&
           w.base + w.end - ticket < DRAIN * w.size * gridDim.x;
}

// walk_next takes a ticket and finds its chunk. It says whether there is one.
__device__ bool walk_next(const Args &a, const Shared &sh, Walk &w, Piece &p) {
    u64 ticket = w.next;
    w.next = atomicAdd(w.tickets, 1ull); // its answer travels while this chunk is found and moved
    while (w.part < w.numParts) {
        u64 k = ticket - w.base;
        bool over = k >= w.num;
        k += w.lo;
        while (!over && k >= w.end) {
            if (++w.seg == w.numSeg) {
                w.num = w.end; // all of the part's: only where there are no shares
                over = true;
            } else {
                enter_segment(a, sh, w);
            }
        }
        if (!over) {
            p = w.head;
            k -= w.first;
            if (w.visits > 1) {
                u32 at = (u32)k, per = STRETCH * w.visits, lap = at / per, visit = 0; // 64-bit divisions are slow
                u32 length = min(STRETCH, w.chunks - lap * STRETCH);
                for (at -= lap * per; at >= length; at -= length)
                    visit++;
                k = lap * STRETCH + at;
                p.dst = visit * VISIT;
                p.numDst = min(VISIT, w.size - p.dst);
            }
            u64 at = k * w.chunk;
            p.srcAt += at;
            p.dstAt += at;
            p.bytes = min((u64)w.chunk, w.bytes - at);
            return true;
        }
        w.base += w.num;
        w.part++;
        enter_part(a, sh, w);
    }
    return false;
}

__device__ __forceinline__ u8 *source(const Shared &sh, const Piece &p, u32 i) {
    return (u8 *)sh.entries[i].parts[p.part].src + p.srcAt;
}
__device__ __forceinline__ u8 *target(const Shared &sh, const Piece &p, u32 i) {
    return (u8 *)sh.entries[i].parts[p.part].dst + p.dstAt;
}

// destination is the k-th destination of a piece; where they are all, each rank begins with itself, so that they do not all
// write to one at a time.
__device__ __forceinline__ u32 destination(const Piece &p, u32 rank, u32 size, u32 k) {
    if (p.numDst < size)
        return p.dst + k;
    return rank + k < size ? rank + k : rank + k - size;
}

// take gives all threads of the block the next piece. The walk is thread 0's.
__device__ bool take(const Args &a, Shared &sh, Walk &w, Piece &p) {
    __syncthreads(); // all have read the piece before
    if (threadIdx.x == 0)
        sh.more = walk_next(a, sh, w, p);
    __syncthreads();
    return sh.more;
}

// flow_copy moves chunks with all threads of the block: any alignment. w and p are in shared memory.
__device__ __noinline__ void flow_copy(const Args &a, Shared &sh, Walk &w, Piece &p, u32 chunk, u64 ticket) {
    if (threadIdx.x == 0)
        walk_start(a, sh, w, chunk, ticket);
    const Team team = {threadIdx.x, blockDim.x};
    const u32 rank = a.ctl->rank, size = a.ctl->size;
    while (take(a, sh, w, p))
        for (u32 k = 0; k < p.numDst; k++)
            copy_rows(target(sh, p, destination(p, rank, size, k)), p.bytes, source(sh, p, p.src), p.bytes, 1, p.bytes, team);
}
