// Where threads of a block wait for each other: barriers and warp operations.
#include "races.h"

namespace weft_emu {

void leave(Block &b);
void wake(Block &b, uint32_t warp, uint32_t lanes);

// have is how many threads have come to a barrier. A warp counts as 32, lanes that have ended included, once all its other lanes
// are there.
static uint32_t have(Block &b, const Barrier &r) {
    uint32_t n = 0;
    for (uint32_t w = 0; w * 32 < b.num_threads; w++)
        if (r.masks[w])
            n += r.masks[w] == b.warps[w].live ? 32 : __builtin_popcount(r.masks[w]);
    return n;
}

static bool complete(Block &b, const Barrier &r) {
    return r.arrived > 0 && (r.wanted == 0 ? r.arrived == b.live : r.arrived >= r.wanted || have(b, r) >= r.wanted);
}

static void release(Block &b, Barrier &r, uint32_t thread) {
    together(b, r.masks, r.wanted == 0);
    for (uint32_t w = 0; w * 32 < b.num_threads; w++) {
        wake(b, w, r.masks[w] & ~(thread / 32 == w ? 1u << thread % 32 : 0));
        r.masks[w] = 0;
    }
    r.arrived = 0;
    r.phase++;
    r.holds[r.phase & 1] = 0;
    b.progress = true;
}

uint32_t barrier(uint32_t number, uint32_t threads, bool condition) {
    Block &b = block();
    uint32_t me = b.current, phase;
    if (number >= NUM_BARRIERS || threads % 32 != 0)
        fail("a barrier with a wrong number or count", number, threads);
    Barrier &r = b.barriers[number];
    if (r.arrived == 0)
        r.wanted = threads;
    else if (r.wanted != threads)
        fail("threads give a barrier different counts", r.wanted, threads);
    phase = r.phase & 1;
    r.arrived++;
    r.masks[me / 32] |= 1u << me % 32;
    r.holds[phase] += condition;
    if (complete(b, r)) {
        release(b, r, me);
    } else {
        b.fibers[me].waits = number;
        leave(b);
    }
    return r.holds[phase];
}

static void resolve(Block &b, Warp &w, uint32_t warp, Meet &m) {
    if (m.complete || (m.mask & w.live & ~m.arrived))
        return;
    m.complete = true;
    m.rest = m.arrived;
    if (m.op == SYNC) {
        uint32_t lanes[32] = {};
        lanes[warp] = m.arrived;
        together(b, lanes, false);
    }
    b.progress = true;
    wake(b, warp, m.arrived & ~(b.current / 32 == warp ? 1u << b.current % 32 : 0));
}

static uint64_t answer(const Meet &m, int op, uint64_t value, uint32_t arg) {
    uint32_t bits = 0;
    switch (op) {
    case SHUFFLE: return m.arrived >> arg & 1 ? m.value[arg] : 0xdeadbeefdeadbeefull; // of a lane that has ended: anything
    case BALLOT:
    case MATCH:
        for (uint32_t all = m.arrived; all != 0; all &= all - 1) {
            uint32_t i = __builtin_ctz(all);
            if (op == BALLOT ? m.value[i] != 0 : m.value[i] == value)
                bits |= 1u << i;
        }
    }
    return bits;
}

uint64_t meet(uint32_t mask, int op, uint64_t value, uint32_t arg) {
    Block &b = block();
    uint32_t warp = b.current / 32, bit = 1u << b.current % 32;
    Warp &w = b.warps[warp];
    if (!(mask & bit))
        fail("a warp operation whose mask leaves out its caller", mask, bit);
    Meet *m = nullptr;
    for (uint32_t all = w.active; all != 0 && !m; all &= all - 1) {
        Meet &x = w.meets[__builtin_ctz(all)];
        if (x.mask == mask && !x.complete)
            m = &x;
    }
    if (!m) {
        uint32_t i = __builtin_ctz(~w.active);
        m = &w.meets[i];
        w.active |= 1u << i;
        m->mask = mask;
        m->arrived = 0;
        m->complete = false;
        m->op = op;
    }
    if (m->op != op)
        fail("lanes of a warp are in different operations", m->op, op);
    m->arrived |= bit;
    m->value[b.current % 32] = value;
    resolve(b, w, warp, *m);
    if (!m->complete) {
        Fiber &f = b.fibers[b.current];
        f.waits = MEETS;
        f.mask = mask;
        leave(b);
    }
    uint64_t result = answer(*m, op, value, arg);
    m->rest &= ~bit;
    if (m->rest == 0)
        w.active &= ~(1u << (m - w.meets));
    return result;
}

// end takes the running thread out of its block. Others no longer wait for it.
void end() {
    Block &b = block();
    uint32_t me = b.current, warp = me / 32;
    Warp &w = b.warps[warp];
    for (Copy *c = b.copies; c; c = c->next)
        if (c->thread == me && !c->barrier)
            fail("a thread ends before its bulk stores are written", (uint64_t)c->to, c->bytes);
    b.fibers[me].waits = ENDED;
    b.live--;
    w.live &= ~(1u << me % 32);
    b.progress = true;
    for (uint32_t all = w.active; all != 0; all &= all - 1)
        resolve(b, w, warp, w.meets[__builtin_ctz(all)]);
    for (Barrier &r : b.barriers)
        if (complete(b, r))
            release(b, r, me);
    leave(b);
}

} // namespace weft_emu
