// The meetings of protocol.cuh: flags, lines, records, deadlines.

// DELAY spins up to 4 us, now and then, before a store of data or of a flag: in a build that looks for races.
#ifdef WEFT_DELAYS
__device__ __noinline__ void delay() {
    u32 lane = threadIdx.x & 31, tick = clock_cycles();
    tick = __shfl_sync(__activemask(), tick, __ffs(__activemask()) - 1); // one choice for a warp, else its threads add up
    u32 x = (tick ^ blockIdx.x * 0x9e3779b9u ^ (threadIdx.x - lane) * 0x85ebca6bu) * 2654435761u;
    x ^= x >> 15;
    if ((x & 15) != 0)
        return;
    u64 until = clock_ns() + (x >> 8 & 4095);
    while (clock_ns() < until)
        ;
}
#define DELAY() delay()
#else
#define DELAY()
#endif

__device__ __forceinline__ void line_store(Line *p, u32 a, u32 b, u32 flag) { store_line(p, a, b, flag); }
__device__ __forceinline__ Line line_load(const Line *p) {
    Line v;
    load_line(p, v.a, v.flagA, v.b, v.flagB);
    return v;
}

// spin waits for *flag >= want. It returns 0, or why it gave up.
__device__ u32 spin(const Ctl *c, const u64 *flag, u64 want, const u64 *closed) {
    const u64 *abort = &c->world[c->worldRank]->abort;
    u64 start = 0, timeout = 0;
    for (u32 n = 1;; n++) {
        u64 raised = load_relaxed(abort);
        bool there = load_relaxed(flag) >= want;
        if (raised)
            return ABORTED;
        if (there)
            return load_acquire(flag) >= want ? 0 : TIMEOUT;
        if (n & 31)
            continue;
        u64 gone = load_relaxed(closed);
        if (gone != 0 && want >= gone)
            return load_acquire(flag) >= want ? 0 : CLOSED;
        if ((n & 255) == 0 && load_relaxed((const u64 *)c->hostAbort))
            return ABORTED;
        u64 now = clock_ns();
        if (start == 0) {
            start = now;
            timeout = load_relaxed(&c->timeout);
        } else if (now - start > timeout) {
            return TIMEOUT;
        }
    }
}

// report writes one Record for this launch: the first block that asks.
__device__ void report(Ctl *c, const Args &a, Record r) {
    u64 launch = c->launches / WHOLE + 1;
    if (atomicMax(&c->reported, launch) >= launch)
        return;
    Rank *self = c->world[c->worldRank];
    r.call = a.entry.call;
    r.by = load_relaxed(&self->abort);
    r.group = c->group;
    u64 seq = atomicAdd(&self->numRecords, 1ull) + 1;
    volatile Record *out = (volatile Record *)c->records + seq % NUM_RECORDS;
    out->why = r.why;
    out->call = r.call;
    out->otherCall = r.otherCall;
    out->epochSeen = r.epochSeen;
    out->epochWanted = r.epochWanted;
    out->missing = r.missing;
    out->by = r.by;
    out->a = r.a;
    out->b = r.b;
    out->n = r.n;
    out->limit = r.limit;
    out->group = r.group;
    out->phase = r.phase;
    __threadfence_system();
    out->seq = seq;
    __threadfence_system();
    if (r.why == TIMEOUT)
        for (u32 i = 0; i < c->worldSize; i++)
            store_release(&c->world[i]->abort, c->worldRank + 1);
}

__device__ __forceinline__ Record record(u64 why, i64 a, i64 b, i64 n, i64 limit) {
    Record r = {};
    r.why = why;
    r.a = a;
    r.b = b;
    r.n = n;
    r.limit = limit;
    return r;
}

// gave_up is for all threads of a block after a spin: it reports the worst reason and says whether to leave.
__device__ bool gave_up(Ctl *c, const Args &a, Shared &sh, u32 why, u32 peer, u64 want, const u64 *flags, u64 phase) {
    if (threadIdx.x == 0)
        sh.missing = sh.faults = 0;
    __syncthreads();
    if (why != 0) {
        atomicOr(&sh.missing, 1u << peer);
        atomicOr(&sh.faults, 1u << why);
    }
    __syncthreads();
    u32 faults = sh.faults;
    if (faults == 0)
        return false;
    if (threadIdx.x == 0) {
        u32 first = __ffs(sh.missing) - 1;
        Record r = record(faults >> TIMEOUT & 1 ? TIMEOUT : faults >> CLOSED & 1 ? CLOSED : ABORTED, first, first, 0, 0);
        r.missing = sh.missing;
        r.epochSeen = flags ? load_relaxed(flags + first) : 0;
        r.epochWanted = want;
        r.phase = phase;
        report(c, a, r);
    }
    return true;
}

// push writes this rank's entry to dst, of which it is the only writer.
__device__ void push(const Args &a, const Shared &sh, Entry *dst, u32 thread, u32 threads) {
    const uint4 *from = (const uint4 *)&sh.entry;
    uint4 *to = (uint4 *)dst;
    u32 counts = (u32)((const u8 *)sh.entry.send - (const u8 *)&sh.entry) / 16;
    u32 words = a.entryWords + (a.ragged ? 2 * MAX_RANKS / 4 : 0);
    for (u32 i = thread; i < words; i += threads) {
        u32 at = i < a.entryWords ? i : counts + i - a.entryWords;
        DELAY();
        to[at] = from[at];
    }
}

// stage copies the entry from the arguments to shared memory, with counts that are on the device.
__device__ void stage(const Args &a, Shared &sh) {
    const u32 *from = (const u32 *)&a.entry;
    u32 *to = (u32 *)&sh.entry;
    for (u32 i = threadIdx.x; i < sizeof(Entry) / 4; i += blockDim.x)
        to[i] = from[i];
    __syncthreads();
    if (threadIdx.x < a.numOwn)
        sh.entry.send[threadIdx.x] = ((const int *)a.own)[threadIdx.x];
    __syncthreads();
}

// fence orders what this thread has seen and done before what it does next, for all ranks.
__device__ __forceinline__ void fence(const Args &a) {
    if (a.shared & 1)
        __threadfence();
    else
        __threadfence_system();
}

// last_block says, to all threads, whether this block is the last of its launch to come here. What the other blocks did
// happened before what it does next, unless nothing of it matters (ordered is false).
__device__ bool last_block(const Args &a, Shared &sh, bool ordered) {
    Ctl *c = a.ctl;
    __syncthreads();
    if (gridDim.x == 1)
        return true;
    if (threadIdx.x == 0) {
        if (ordered && !(a.shared & 1))
            fence(a);
        // Cumulative: it carries what the other threads wrote before the barrier, and what the blocks before brought.
        sh.last = count_one(&c->doneBlocks) == gridDim.x - 1;
        if (ordered && !(a.shared & 1))
            fence(a);
    }
    __syncthreads();
    return sh.last;
}

// abandon counts a launch that met nobody.
__device__ void abandon(const Args &a, Shared &sh) {
    if (last_block(a, sh, false) && threadIdx.x == 0) {
        a.ctl->doneBlocks = 0;
        a.ctl->launches += WHOLE;
    }
}

enum { ELSEWHERE = 31 }; // a reason beside those of Record: the peer is in another call

// Patience is what a wait for lines looks at now and then.
struct Patience {
    u64 start;
    u32 looks;
};

// impatient returns why a wait for a line of rank from should end, or 0. signature is what the peer's entry should have.
__device__ __noinline__ u32 impatient(const Ctl *c, Patience &w, u32 from, u64 e, u64 signature) {
    if (++w.looks & 3) // each look costs as much as a line's way
        return 0;
    if (load_relaxed(&c->world[c->worldRank]->abort))
        return ABORTED;
    if (w.looks & 15)
        return 0;
    Line head = line_load(&c->inbox[e & 1][from][0]);
    if (head.flagA == (u32)e && head.flagB == (u32)e && (head.a | (u64)head.b << 32) != signature)
        return ELSEWHERE;
    u64 gone = load_relaxed(&c->closed[0][from]);
    if (gone != 0 && e >= gone)
        return CLOSED;
    if ((w.looks & 127) == 0 && load_relaxed((const u64 *)c->hostAbort))
        return ABORTED;
    u64 now = clock_ns();
    if (w.start == 0)
        w.start = now;
    else if (now - w.start > load_relaxed(&c->timeout))
        return TIMEOUT;
    return 0;
}

// collect waits for lines [0, lines) of every rank's entry of epoch e, or, after the first, for those of ranks in the same
// call. It returns to each thread why it gave up, and on whom.
__device__ u32 collect(const Args &a, Shared &sh, u64 e, u32 lines, u32 counts, u32 &from) {
    Ctl *c = a.ctl;
    u32 all = lines + counts, why = 0;
    const u32 first = (u32)((const u8 *)a.entry.send - (const u8 *)&a.entry) / 8;
    for (u32 i = threadIdx.x; i < c->size * all; i += blockDim.x) {
        u32 p = i / all, w = i - p * all;
        w = w < lines ? w : first + w - lines;
        const Line *line = &c->inbox[e & 1][p][w];
        Patience wait = {};
        Line v;
        while (v = line_load(line), v.flagA != (u32)e || v.flagB != (u32)e) {
            if ((why = impatient(c, wait, p, e, all > HEAD ? a.entry.signature : ~0ull)) == 0)
                continue;
            if (why == ELSEWHERE && all == HEAD)
                continue; // only the head is wanted
            from = p;
            return why;
        }
        ((u64 *)&sh.entries[p])[w] = v.a | (u64)v.b << 32;
    }
    return 0;
}

enum { GO, FAULT, LEAVE };

// publish writes this rank's entry to all ranks' inboxes. One block.
__device__ void publish(const Args &a, u64 e, u32 lines, u32 counts) {
    Ctl *c = a.ctl;
    const u64 *words = (const u64 *)&a.entry;
    const u32 first = (u32)((const u8 *)a.entry.send - (const u8 *)&a.entry) / 8;
    u32 all = lines + counts;
    for (u32 i = threadIdx.x; i < c->size * all; i += blockDim.x) {
        u32 p = i / all, w = i - p * all;
        w = w < lines ? w : first + w - lines;
        u64 v = words[w];
        if (w >= first && (w - first) * 2 < a.numOwn) { // counts that are on the device
            const int *own = (const int *)a.own + (w - first) * 2;
            v = (u32)own[0] | ((w - first) * 2 + 1 < a.numOwn ? (u64)(u32)own[1] << 32 : 0);
        }
        DELAY();
        line_store(&c->peers[p]->inbox[e & 1][c->rank][w], (u32)v, (u32)(v >> 32), (u32)e);
    }
}

// translate turns the addresses that ranks of other processes published into those at which this rank sees the same memory.
__device__ void translate(const Ctl *c, Shared &sh) {
    for (u32 i = threadIdx.x; i < c->size * MAX_PARTS; i += blockDim.x) {
        Entry &from = sh.entries[i / MAX_PARTS];
        u32 part = i % MAX_PARTS;
        if (part < from.numParts) {
            from.parts[part].src += c->shift[i / MAX_PARTS];
            from.parts[part].dst += c->shift[i / MAX_PARTS];
        }
    }
    __syncthreads();
}

// begin is the first meeting. GO: all ranks are in the same call. FAULT: they are not; every rank finds the same. LEAVE: the
// world is dead, or a rank has closed. One block of a rank speaks for it.
__device__ int begin(const Args &a, Shared &sh, u64 e, bool speaks = blockIdx.x == 0) {
    Ctl *c = a.ctl;
    u32 t = threadIdx.x, lines = 2 * a.entryWords, counts = a.ragged ? MAX_RANKS : 0, from = 0;
    u64 raised = load_relaxed(&c->world[c->worldRank]->abort); // on its way while the lines travel
    if (speaks)
        publish(a, e, lines, counts);
    u32 why = collect(a, sh, e, lines, counts, from);
    if (raised != 0) // nothing begins in a dead world
        why = ABORTED;
    if (t == 0) {
        sh.epoch = e;
        sh.bad = c->size;
    }
    if (__syncthreads_or(why)) {
        // A rank in another call sends other lines; the heads of all ranks come.
        if (__syncthreads_or(why == 0 || why == ELSEWHERE ? 0 : 1) == 0) {
            why = collect(a, sh, e, HEAD, 0, from);
            __syncthreads();
        } else if (why == ELSEWHERE) {
            why = 0;
        }
        if (__syncthreads_or(why)) {
            gave_up(c, a, sh, why, from, e, 0, 0);
            abandon(a, sh);
            return LEAVE;
        }
    }
    if (t < c->size && sh.entries[t].signature != sh.entries[0].signature)
        atomicMin(&sh.bad, t);
    __syncthreads();
    u32 bad = sh.bad;
    if (bad == c->size) {
        if (a.shared & 2)
            translate(c, sh);
        return GO;
    }
    if (blockIdx.x == 0 && t == 0) {
        Record r = record(DISAGREE, 0, bad, 0, 0);
        r.epochSeen = sh.entries[0].call;
        r.otherCall = sh.entries[bad].call;
        report(c, a, r);
    }
    return FAULT;
}

// next_epoch is the epoch of this launch's meeting.
__device__ __forceinline__ u64 next_epoch(const Args &a) { return load_relaxed(&a.ctl->epoch) / WHOLE + 1; }

// count_epoch is a settled launch's end: every block adds its part of one epoch and waits for nobody. A block that starts late
// still divides to the old epoch, because its own part is missing. All threads of a block that read the epoch have passed a
// barrier before its thread 0 comes here.
__device__ __forceinline__ void count_epoch(Ctl *c) {
    u64 part = blockIdx.x == 0 ? WHOLE - (gridDim.x - 1) : 1;
    add_relaxed(&c->epoch, part);
    add_relaxed(&c->launches, part);
}

// finish is the second meeting, after which peers may reuse what this rank read and read what it wrote. settled skips the
// meeting: then it only counts. A fault settles a call: all ranks find it and touch nothing, and one that calls a barrier
// would not come to the second meeting.
__device__ void finish(const Args &a, Shared &sh, bool settled) {
    Ctl *c = a.ctl;
    if (!last_block(a, sh, !settled))
        return;
    u32 t = threadIdx.x, why = 0;
    u64 e = sh.epoch;
    if (!settled) {
        if (t < c->size) {
            fence(a); // in the thread that stores the flag
            DELAY();
            store_relaxed(&c->peers[t]->done[c->rank], e);
            why = spin(c, &c->done[t], e, &c->closed[0][t]);
        }
        if (__syncthreads_or(why))
            gave_up(c, a, sh, why, t, e, c->done, 1);
    }
    if (t == 0) {
        c->doneBlocks = 0;
        c->tickets[e & 1] = 0; // all ranks have taken theirs
        c->epoch = e * WHOLE;
        c->launches += WHOLE;
    }
}
