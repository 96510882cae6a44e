// Bulk copies. With a seed they take their time: a load is done, and a store first read and then written, when chance wants, in
// any order, or when a thread waits for it.
#include "races.h"

#include <stdlib.h>
#include <string.h>

namespace weft_emu {

uint64_t draw(Block &b);

// settle ends a phase of a barrier when nothing is missing.
static void settle(Mbarrier &m) {
    if (m.missing == 0 && m.bytes == 0) {
        m.phase ^= 1;
        m.missing = m.num;
    }
}

void mbarrier_init(Mbarrier &m, uint32_t n) {
    m.num = m.missing = n;
    m.phase = 0;
    m.bytes = 0;
}

void mbarrier_arrive(Mbarrier &m, uint32_t bytes) {
    step();
    if (m.missing == 0)
        fail("an arrival too many at a barrier", m.num);
    publish(block(), (uintptr_t)&m, true, true);
    m.bytes += bytes;
    m.missing--;
    settle(m);
}

bool mbarrier_passed(Mbarrier &m, uint32_t parity) {
    if (m.phase == parity) {
        poll();
        return false;
    }
    observe(block(), (uintptr_t)&m, true);
    return true;
}

// finish takes *at out of the list when it is done.
static void finish(Copy **at) {
    Copy *c = *at;
    *at = c->next;
    free(c->read);
    free(c);
}

// go does the next part of a copy: a store's writing only with all.
static void go(Copy **at, bool all) {
    Copy *c = *at;
    if (c->barrier) {
        memcpy(c->to, c->from, c->bytes);
        c->barrier->bytes -= c->bytes;
        settle(*c->barrier);
        finish(at);
        return;
    }
    if (c->from) {
        c->read = malloc(c->bytes);
        memcpy(c->read, c->from, c->bytes);
        c->from = nullptr;
        if (!all)
            return;
    }
    memcpy(c->to, c->read, c->bytes);
    finish(at);
}

// advance does a part of one of the copies, if there are any.
bool advance(Block &b) {
    uint32_t n = 0;
    for (Copy *c = b.copies; c; c = c->next)
        n++;
    if (n == 0)
        return false;
    Copy **at = &b.copies;
    for (uint32_t skip = draw(b) % n; skip > 0; skip--)
        at = &(*at)->next;
    go(at, false);
    return true;
}

void bulk(void *to, const void *from, uint32_t bytes, Mbarrier *barrier) {
    Block &b = block();
    if (((uintptr_t)to | (uintptr_t)from | bytes) % 16 != 0 || bytes == 0)
        fail("a bulk copy of misaligned memory", (uint64_t)to, (uint64_t)from);
    if (b.races) {
        access(b, (uintptr_t)from, bytes, false, false, (uintptr_t)__builtin_return_address(0));
        access(b, (uintptr_t)to, bytes, true, false, (uintptr_t)__builtin_return_address(0));
        if (barrier)
            publish(b, (uintptr_t)barrier, true, true);
    }
    if (b.seed == 0) {
        memcpy(to, from, bytes);
        if (barrier) {
            barrier->bytes -= bytes;
            settle(*barrier);
        }
        return;
    }
    Copy *c = (Copy *)malloc(sizeof(Copy));
    *c = {nullptr, to, from, nullptr, bytes, b.current, b.fibers[b.current].group, barrier};
    Copy **at = &b.copies;
    while (*at)
        at = &(*at)->next;
    *at = c;
}

void commit() { self().group++; }

void bulk_read(uint32_t newest) {
    Block &b = block();
    uint32_t me = b.current, group = b.fibers[me].group;
    for (Copy **at = &b.copies; *at;) {
        Copy *c = *at;
        if (c->thread == me && !c->barrier && c->from && group - c->group > newest)
            go(at, false);
        else
            at = &c->next;
    }
    step();
}

void bulk_write() {
    Block &b = block();
    for (Copy **at = &b.copies; *at;) {
        if ((*at)->thread == b.current && !(*at)->barrier)
            go(at, true);
        else
            at = &(*at)->next;
    }
}

} // namespace weft_emu
