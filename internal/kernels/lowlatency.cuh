// Dispatch and combine of few tokens without a meeting: every row has a fixed place at its destination, so ranks push at once and
// wait once.
//
//	dispatch, send: count; push each row and its notes to place (source, how many of the source's rows came before); heads with
//	                the counts; a flag for each row when it is written
//	dispatch, recv: wait for heads; places of the index from them; notes -> index; wait for the flags of the rows
//	combine, send:  sum a row's experts (or take the partial row) and push it to place (token, how many ranks of the token came
//	                before); a flag for each piece
//	combine, recv:  a warp waits for the pieces that it adds up, and adds them up in rank order
//
// Heads and notes are lines (8 bytes with the number of the call in each 16-byte store), so that zero differs from "not there
// yet" and they need no fence. An exchanger numbers the calls of its ranks together, dispatches and combines; the number lives on the
// device, so a replayed graph needs no new arguments.
//
// Why nothing is overwritten too early. Bank b of rank A has rows, notes and heads that B wrote in call n. B writes them again in its
// next dispatch to b, call m. Before that B's combine of b came home: B saw A's word came[b] of that combine, and the pieces of all
// its own rows. A stores came[b] in its combine's kernel, when its experts and everything before them in its
// stream have ended; in that kernel A reads of what B wrote only the notes of B's rows, each before the piece that B waits
// for, (and where y is X itself, those rows); the counts it takes from memory of its own. So B waits for nothing more. The way
// back: A writes B's rows of tokens only after it had B's head of the same dispatch, which B sends when its kernels of the last use
// have ended. When a result was released instead, nothing came home: the next dispatch to b first waits until every rank has
// begun it too (ready), when all that they did before has ended. A rank knows by itself whether it must: it compares the
// bank's dispatches with those that came home.
//
// A rank whose call was refused stores the call's number into refused, among its last REFUSALS of that bank, and passed of all ranks,
// and no heads. A number there is overwritten when every rank has begun the bank's next refused call, so has the bank free again and
// has heard of the one before, however long a half was pending. passed without heads means that, or that the rank is in another call; so does the head of a meeting of the group in the inbox, or of a small
// all_reduce. In that case all ranks go on to that meeting, where every one finds the same fault. (Two exchangers of this
// mode that ranks call in different orders meet nowhere: those waits end with their deadlines.)

// Low is where the words are. All but state are offsets in each rank's region.
struct Low {
    u64 state;                   // this rank's own: u64 calls, pad[7]; LOW_WORDS for each bank
    u64 passed, refused, ready;  // u64 [MAX_RANKS]; [banks][REFUSALS][MAX_RANKS]; [MAX_RANKS]
    u64 came;                    // u64 [MAX_RANKS], of the bank
    u64 heads, notes, landed;    // Line [numRanks][headLines], Line [rows][1 + topK], u64 [rows]
    u64 back, pieces;            // [tokens][width] rows of backStride bytes; u64 [tokens][width][parts]
    u32 bank, headLines, width, parts; // width: rows that can come back of a token
    u32 backStride, step, phases, banks; // step: values of a piece
};

#define REFUSALS 2u
#define LOW_WORDS 32u
enum { LOW_SEND = 1, LOW_RECV = 2 }; // phases

// LowBank is this rank's notes about a bank. sends is in units of WHOLE, as epochs are.
struct LowBank {
    u64 sends, homes;   // dispatches, and the last of them whose combine came home
    u64 call, combine;  // numbers of the calls
    u64 why;            // the rank's own dispatch was refused on the device
    u64 tokens, copies, own, bad;
    u64 pad[7];
    u32 rows[MAX_RANKS]; // received from each rank
};

struct LowDispatchArgs {
    DispatchArgs d;
    Low low;
};

struct LowCombineArgs {
    CombineArgs c; // terms and rows as in a bank; mode: what y has
    Exchange ex;
    Low low;
    u64 y, slot, weight, numRows; // slot: int [rows, topK]
    i64 yStride;                  // bytes
};

// LowBlock is a block's view of a call.
struct LowBlock {
    u64 call, epoch;          // epoch: of the group's next meeting
    u32 fresh, why;
    u32 rows[MAX_RANKS + 1];  // prefix sums of the rows of each source
};

__device__ __forceinline__ LowBank *bank_of(const Low &w) { return (LowBank *)((u64 *)w.state + 8 + LOW_WORDS * w.bank); }
__device__ __forceinline__ u64 *word_of(u64 region, u64 offset) { return (u64 *)(region + offset); }

// low_refused says whether rank from refused the call. It looks at all banks: one that has none free names any.
__device__ __noinline__ bool low_refused(const Exchange &x, const Low &w, u32 from, u64 call) {
    const u64 *refused = word_of(x.peers[x.experts.rank], w.refused) + from;
    for (u32 i = 0; i < w.banks * REFUSALS; i++)
        if (load_acquire(refused + i * MAX_RANKS) == call)
            return true;
    return false;
}

// low_impatient returns why a wait for rank from should end, or 0. call 0: the wait is for what another block of a rank
// that is in the call will send.
__device__ __noinline__ u32 low_impatient(const Args &a, const Exchange &x, const Low &w, Patience &p, u32 from, u64 call, u64 e) {
    const Ctl *c = a.ctl;
    if (++p.looks & 3)
        return 0;
    if (load_relaxed(&c->world[c->worldRank]->abort))
        return ABORTED;
    if (p.looks & 15)
        return 0;
    u64 mine = x.peers[x.experts.rank];
    if (call != 0) {
        if (load_acquire(word_of(mine, w.passed) + from) >= call)
            return low_refused(x, w, from, call) ? REFUSED : ELSEWHERE;
        Line head = line_load(&c->inbox[e & 1][from][0]);
        Line small = line_load((const Line *)c->small[c->rank] + ((e & 1) * c->size + from) * SMALL_STRIDE);
        if ((head.flagA == (u32)e && head.flagB == (u32)e) || (small.flagA == (u32)e && small.flagB == (u32)e)) {
            __threadfence_system(); // what it sent before is there, if it sent any
            return ELSEWHERE;
        }
    }
    if (load_acquire(&c->closed[0][from]) != 0)
        return CLOSED;
    if ((p.looks & 127) == 0 && load_relaxed((const u64 *)c->hostAbort))
        return ABORTED;
    u64 now = clock_ns();
    if (p.start == 0)
        p.start = now;
    else if (now - p.start > load_relaxed(&c->timeout))
        return TIMEOUT;
    return 0;
}

// wait_word waits for *flag >= want, and brings what its writer wrote before it. It returns 0 or why it gave up.
__device__ u32 wait_word(const Args &a, const Exchange &x, const Low &w, const u64 *flag, u64 want, u32 from, u64 call, u64 e) {
    Patience p = {};
    while (load_relaxed(flag) < want) {
        u32 why = low_impatient(a, x, w, p, from, call, e);
        if (why != 0 && load_acquire(flag) < want)
            return why;
    }
    load_acquire(flag);
    return 0;
}

// wait_line waits for the line of the call. number is the call's, also where call is 0.
__device__ u32 wait_line(const Args &a, const Exchange &x, const Low &w, const Line *line, Line &v, u64 number, u32 from, u64 call, u64 e) {
    Patience p = {};
    while (v = line_load(line), v.flagA != (u32)number || v.flagB != (u32)number) {
        u32 why = low_impatient(a, x, w, p, from, call, e);
        if (why == 0)
            continue;
        v = line_load(line);
        if (v.flagA != (u32)number || v.flagB != (u32)number)
            return why;
    }
    return 0;
}

// low_verdict is a block's: GO, LEAVE, REFUSED (by rank sh.bad) or ELSEWHERE, from each thread's reason and the rank it waited for.
__device__ u32 low_verdict(const Args &a, Shared &sh, u32 why, u32 from, u64 call, u64 phase) {
    if (!__syncthreads_or(why))
        return GO;
    bool soft = why == REFUSED || why == ELSEWHERE;
    if (__syncthreads_or(why != 0 && !soft)) {
        gave_up(a.ctl, a, sh, soft ? 0 : why, from, call, 0, phase);
        return LEAVE;
    }
    if (threadIdx.x == 0)
        sh.bad = MAX_RANKS;
    __syncthreads();
    if (why == REFUSED)
        atomicMin(&sh.bad, from);
    __syncthreads();
    return sh.bad < MAX_RANKS ? REFUSED : ELSEWHERE;
}

// low_start reads what the block needs to know, and says GO, or LEAVE in a dead world.
__device__ u32 low_start(const Args &a, Shared &sh, LowBlock &b, const Low &w, bool combine) {
    if (threadIdx.x == 0) {
        const LowBank *bank = bank_of(w);
        bool send = w.phases & LOW_SEND;
        b.call = send ? load_relaxed((u64 *)w.state) / WHOLE + 1 : combine ? bank->combine : bank->call;
        b.epoch = next_epoch(a);
        b.fresh = !combine && load_relaxed(&bank->sends) / WHOLE == bank->homes;
        b.why = send ? 0 : (u32)bank->why;
    }
    u32 raised = load_relaxed(&a.ctl->world[a.ctl->worldRank]->abort) != 0 ? ABORTED : 0;
    return low_verdict(a, sh, raised, 0, 0, 0); // nothing begins in a dead world
}

// low_end reports what every rank finds, and counts the call and the launch: each block its part, as count_epoch does.
__device__ void low_end(const Args &a, Shared &sh, const LowBlock &b, const Low &w, u32 state, bool refuses, bool dispatch) {
    bool counted = false;
    if (state == REFUSED && threadIdx.x == 0 && blockIdx.x == 0)
        report(a.ctl, a, record(REFUSED, sh.bad, sh.bad, 0, 0));
    if (state == ELSEWHERE) {
        counted = true;
        __syncthreads();
        int met = begin(a, sh, b.epoch);
        if (met == GO && threadIdx.x == 0 && blockIdx.x == 0) { // in the same call after all: then it is this code that is wrong
            Record r = record(DISAGREE, 0, a.ctl->rank, 0, 0);
            r.epochSeen = r.otherCall = a.entry.call;
            report(a.ctl, a, r);
        }
        if (met != LEAVE)
            finish(a, sh, true);
    }
    __syncthreads();
    if (threadIdx.x != 0)
        return;
    u64 part = blockIdx.x == 0 ? WHOLE - (gridDim.x - 1) : 1;
    if (w.phases & LOW_SEND) {
        add_relaxed((u64 *)w.state, part);
        if (dispatch && !refuses)
            add_relaxed(&bank_of(w)->sends, part);
    }
    if (!counted)
        add_relaxed(&a.ctl->launches, part);
}
