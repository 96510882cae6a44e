// Who was last at each 8 bytes of memory: four cells for each, found by a hash of the address. Cells that are needed for another
// address are lost, so races can be missed; none is made up.
#include "races.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

namespace weft_emu {

// Cell is an access: clock 28 bits, thread 16, tag 12, first byte 3, log of the bytes 2, write, atomic, in use.
struct Cell {
    uint64_t bits;
    uint32_t clock() const { return bits & 0xfffffff; }
    uint32_t thread() const { return bits >> 28 & 0xffff; }
    uint32_t tag() const { return bits >> 44 & 0xfff; }
    uint32_t first() const { return bits >> 56 & 7; }
    uint32_t bytes() const { return 1u << (bits >> 59 & 3); }
    bool write() const { return bits >> 61 & 1; }
    bool atomic() const { return bits >> 62 & 1; }
    bool used() const { return bits >> 63; }
};

static void say(const char *when, uint32_t thread, const char *what, uint32_t bytes, uintptr_t place) {
    const Run &r = races().runs[thread >> 10];
    Dl_info info = {};
    dladdr((void *)place, &info);
    fprintf(stderr, "  %s %s block %u thread %u: %s of %u bytes, addr2line -ife %s %#lx\n", when, r.kernel, r.block, thread & 1023, what, bytes,
            r.module, (unsigned long)(place - (uintptr_t)info.dli_fbase - 1));
}

static const char *kind(bool write, bool atomic) { return atomic ? write ? "an atomic write" : "an atomic read" : write ? "a write" : "a read"; }

// report ends the process at the first race, or tells of each pair of places once with WEFT_EMULATOR_RACES=2.
static void report(uintptr_t at, Cell now, uintptr_t place, Cell before, uintptr_t other) {
    static Spin mu;
    static uint64_t told[256];
    static uint32_t num;
    const char *mode = getenv("WEFT_EMULATOR_RACES");
    bool on = mode && !strcmp(mode, "2");
    mu.lock();
    uint64_t pair = place * 0x9e3779b97f4a7c15u ^ other;
    bool again = false;
    for (uint32_t i = 0; i < num; i++)
        again = again || told[i] == pair;
    if (!again && num < 256) {
        told[num++] = pair;
        fprintf(stderr, "emulator: a race at %#lx: nothing orders\n", (unsigned long)at);
        say("first", before.thread(), kind(before.write(), before.atomic()), before.bytes(), other);
        say("then", now.thread(), kind(now.write(), now.atomic()), now.bytes(), place);
    }
    if (!on)
        abort();
    mu.unlock();
}

static void look(Block &b, uintptr_t at, uint32_t log, bool write, bool atomic, uintptr_t place) {
    Races &r = races();
    uintptr_t g = at >> 3;
    uint32_t index = (g ^ g >> 24) % GRANULES, tag = (g >> 24 ^ g >> 36) & 0xfff, me = b.slot << 10 | b.current;
    Cell now = {uint64_t(r.time[b.slot] & 0xfffffff) | uint64_t(me) << 28 | uint64_t(tag) << 44 | uint64_t(at & 7) << 56 | uint64_t(log) << 59 |
                uint64_t(write) << 61 | uint64_t(atomic) << 62 | uint64_t(1) << 63};
    const Known *known = b.fibers[b.current].known;
    int free = -1;
    for (int i = 0; i < 4; i++) {
        Cell c = {r.cells[index][i].load(std::memory_order_relaxed)};
        if (!c.used() || c.tag() != tag) {
            free = i;
            continue;
        }
        bool overlap = c.first() < now.first() + now.bytes() && now.first() < c.first() + c.bytes();
        bool same = c.first() == now.first() && c.bytes() == now.bytes();
        if (c.thread() == me) {
            if (same && c.write() == write && c.atomic() == atomic)
                free = i;
            continue;
        }
        bool ordered = knows(known, c.thread(), c.clock());
        if (overlap && (write || c.write()) && !(atomic && c.atomic()) && !ordered)
            report(at, now, place, c, r.places[index][i].load(std::memory_order_relaxed));
        if (ordered && same && (write || !c.write()))
            free = i; // it says no more than this one
    }
    if (free < 0)
        free = (at >> 3 ^ now.clock()) & 3;
    r.cells[index][free].store(now.bits, std::memory_order_relaxed);
    r.places[index][free].store(place, std::memory_order_relaxed);
}

void access(Block &b, uintptr_t at, uint32_t bytes, bool write, bool atomic, uintptr_t place) {
    if ((at & ~(REGION - 1)) == (uintptr_t)&b && at % REGION >= STACKS)
        return; // a stack
    while (bytes > 0) {
        uint32_t log = 3;
        while (1u << log > bytes || at % (1u << log) != 0)
            log--;
        look(b, at, log, write, atomic, place);
        at += 1u << log;
        bytes -= 1u << log;
    }
}

} // namespace weft_emu
