// How ranks meet on the device. Every rank has a Ctl per group in its own memory; peers write into it and only its owner
// polls it. No header of CUDA is needed.
//
//	begin:  block 0 writes its Entry into every peer's inbox, 8 bytes with the epoch in each 16-byte line, so that data
//	        and flag arrive together and no fence is needed: what the entry points to was written by earlier kernels.
//	        Every block polls the lines of its own inbox, and then has all entries: pointers, shapes, counts, signatures.
//	finish: the last block of a rank tells all peers, after a fence, that it no longer touches their memory, and waits for
//	        the same.
//
// Epochs live in device memory, grow by one per meeting and are compared with >= (in lines: equal), so a replayed graph needs
// no new arguments. Inboxes are double-buffered by the epoch's lowest bit: a rank publishes epoch e + 2 only after all ranks
// published e + 1, which they do after their kernel of epoch e has ended.
//
// Every spin looks at the abort words and at the clock. On expiry a rank writes a Record into pinned host memory, raises
// the abort word of every rank and returns; nothing traps and nothing spins for ever.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

#define MAX_RANKS 32
#define MAX_PARTS 8
#define NUM_RECORDS 8
#define THREADS 512

enum { ALL_REDUCE, ALL_GATHER, ALL_GATHERV, REDUCE_SCATTER, REDUCE_SCATTERV, ALL_TO_ALLV, BROADCAST, REDUCE, SEND, RECV,
       BARRIER, SPLIT };
enum { SUM, PROD, MIN, MAX, AVG };
enum { F32 = 1, BF16, F16, E4M3, E5M2, I8, U8, I32, I64 };

// Why a Record was written.
enum { TIMEOUT = 1, ABORTED, CLOSED, DISAGREE, OWN_RANGE, SEND_RANGE, EXPECTED, TAKES, SRC_OWN, SRC_SUM, DST_OWN, SRC_SEND };

// Part is one tensor as its rank published it. Strides are in bytes.
struct Part {
    u64 src, dst;
    i64 srcStride, dstStride;
    u32 srcRows, dstRows, cols, dtype;
};

// Entry is what a rank tells its peers of one call.
struct __align__(16) Entry {
    u64 signature;
    u32 call; // number of the call in its rank's log on the host, for messages
    u32 numParts;
    u32 hostCounts; // bit 0: send is the host's; bit 1: recv is
    u32 sendLimit, recvLimit;
    u32 pad;
    Part parts[MAX_PARTS];
    int send[MAX_RANKS], recv[MAX_RANKS];
};

// Line is 8 bytes that arrive together with the epoch they belong to.
struct __align__(16) Line {
    u32 a, flagA, b, flagB;
};

// LINES carry an Entry; the first HEAD of them are what every call has.
#define LINES (sizeof(Entry) / 8)
#define HEAD 4u

// Record is an asynchronous error in pinned host memory. seq is written last.
struct Record {
    u64 seq, why, call, otherCall, epochSeen, epochWanted, missing, by;
    i64 a, b, n, limit;
    u64 group, phase, pad[2];
};

// Rank is one rank's words for all its groups.
struct Rank {
    u64 abort; // 0, or 1 + the world rank that raised it
    u64 numRecords;
    u64 pad[14];
};

// Ctl is one rank's end of a group.
struct Ctl {
    u64 epoch, launches, reported, doneBlocks; // of this rank's kernels alone
    u64 timeout;                               // nanoseconds
    u64 hostAbort, records;                    // pinned host memory
    u32 rank, size, worldRank, worldSize;
    u64 group;
    u64 sent[MAX_RANKS], received[MAX_RANKS]; // messages to and from each rank
    Ctl *peers[MAX_RANKS];
    Rank *world[MAX_RANKS];
    u64 small[MAX_RANKS]; // where each rank receives small all_reduces
    u64 pad[6]; // the words below begin a cache line
    // Written by peers, each in its own word.
    u64 done[MAX_RANKS], mail[MAX_RANKS], ack[MAX_RANKS];
    u64 closed[3][MAX_RANKS]; // first epoch, message and answer that will never come; 0 while the peer lives
    u64 answers[MAX_RANKS];   // call number << 1 | whether the shapes differ
    Line inbox[2][MAX_RANKS][LINES];
    Entry letters[MAX_RANKS];
};

// Args are a launch's parameters.
struct Args {
    Ctl *ctl;
    u32 kind, reduce, peer, entryWords; // entryWords: 16-byte words of the entry before its counts
    u64 own, all;                       // counts on the device
    u32 numOwn;
    u16 ragged, shared; // shared: all ranks of the group are on one GPU
    Entry entry;
};

// MemoryArgs are the parameters of a copy in one address space.
struct MemoryArgs {
    u64 dst, src;
    i64 dstStride, srcStride;
    u64 rows, bytes;
};

struct Shared {
    Entry entries[MAX_RANKS]; // of all ranks, after begin
    Entry entry;
    u64 epoch;
    u32 missing, bad, last, faults;
    int rows[MAX_RANKS + 1]; // prefix sums
};

__device__ __forceinline__ u64 load_acquire(const u64 *p) {
    u64 v;
    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
    return v;
}
__device__ __forceinline__ u64 load_relaxed(const u64 *p) {
    u64 v;
    asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
    return v;
}
__device__ __forceinline__ void store_release(u64 *p, u64 v) {
    asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
}
__device__ __forceinline__ u64 clock_ns() {
    u64 t;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));
    return t;
}

__device__ __forceinline__ void store_relaxed(u64 *p, u64 v) {
    asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
}
__device__ __forceinline__ void line_store(Line *p, u32 a, u32 b, u32 flag) {
    asm volatile("st.volatile.global.v4.u32 [%0], {%1, %2, %3, %2};" ::"l"(p), "r"(a), "r"(flag), "r"(b) : "memory");
}
__device__ __forceinline__ Line line_load(const Line *p) {
    Line v;
    asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.a), "=r"(v.flagA), "=r"(v.b), "=r"(v.flagB) : "l"(p) : "memory");
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
    if (atomicMax(&c->reported, c->launches + 1) >= c->launches + 1)
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
    if (a.shared)
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
        if (ordered)
            fence(a); // cumulative: carries what the other threads wrote before the barrier
        sh.last = atomicAdd(&c->doneBlocks, 1ull) == gridDim.x - 1;
        if (ordered)
            fence(a);
    }
    __syncthreads();
    return sh.last;
}

// abandon counts a launch that met nobody.
__device__ void abandon(const Args &a, Shared &sh) {
    if (last_block(a, sh, false) && threadIdx.x == 0) {
        a.ctl->doneBlocks = 0;
        a.ctl->launches++;
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
            if ((why = impatient(c, wait, p, e, lines > HEAD ? a.entry.signature : ~0ull)) == 0)
                continue;
            if (why == ELSEWHERE && lines == HEAD)
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
        line_store(&c->peers[p]->inbox[e & 1][c->rank][w], (u32)v, (u32)(v >> 32), (u32)e);
    }
}

// begin is the first meeting. GO: all ranks are in the same call. FAULT: they are not; every rank finds the same. LEAVE: the
// world is dead, or a rank has closed.
__device__ int begin(const Args &a, Shared &sh, u64 e) {
    Ctl *c = a.ctl;
    u32 t = threadIdx.x, lines = 2 * a.entryWords, counts = a.ragged ? MAX_RANKS : 0, from = 0;
    u64 raised = load_relaxed(&c->world[c->worldRank]->abort); // on its way while the lines travel
    if (blockIdx.x == 0)
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
    if (bad == c->size)
        return GO;
    if (blockIdx.x == 0 && t == 0) {
        Record r = record(DISAGREE, 0, bad, 0, 0);
        r.epochSeen = sh.entries[0].call;
        r.otherCall = sh.entries[bad].call;
        report(c, a, r);
    }
    return FAULT;
}

// next_epoch is the epoch of this launch's meeting.
__device__ __forceinline__ u64 next_epoch(const Args &a) { return load_relaxed(&a.ctl->epoch) + 1; }

// finish is the second meeting, after which peers may reuse what this rank read and read what it wrote. settled skips the
// meeting: then it only counts.
__device__ void finish(const Args &a, Shared &sh, bool settled) {
    Ctl *c = a.ctl;
    if (!last_block(a, sh, !settled))
        return;
    u32 t = threadIdx.x, why = 0;
    u64 e = sh.epoch;
    if (!settled) {
        if (t < c->size) {
            fence(a); // in the thread that stores the flag
            store_relaxed(&c->peers[t]->done[c->rank], e);
            why = spin(c, &c->done[t], e, &c->closed[0][t]);
        }
        if (__syncthreads_or(why))
            gave_up(c, a, sh, why, t, e, c->done, 1);
    }
    if (t == 0) {
        c->doneBlocks = 0;
        c->epoch = e;
        c->launches++;
    }
}
