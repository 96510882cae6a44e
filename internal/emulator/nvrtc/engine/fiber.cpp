// Fibers: how the block's threads take turns on one OS thread.
//
// Lanes that can run are ready; one that has looked at memory of others and not found what it waits for is polled, and runs
// again when no lane is ready. When a whole round only polled, the OS thread gives the processor to other blocks.
#include "block.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

extern "C" void weft_emu_switch(void **from, void *to);

// The registers that a function must keep, on the old stack and from the new one.
asm(R"(
.text
.hidden weft_emu_switch
.globl weft_emu_switch
.type weft_emu_switch, @function
weft_emu_switch:
	pushq %rbp
	pushq %rbx
	pushq %r12
	pushq %r13
	pushq %r14
	pushq %r15
	movq %rsp, (%rdi)
	movq %rsi, %rsp
	popq %r15
	popq %r14
	popq %r13
	popq %r12
	popq %rbx
	popq %rbp
	ret
.size weft_emu_switch, .-weft_emu_switch
)");

namespace weft_emu {

bool advance(Block &b);

uint64_t draw(Block &b) { // xorshift
    b.seed ^= b.seed << 13;
    b.seed ^= b.seed >> 7;
    return b.seed ^= b.seed << 17;
}

// pick returns one of the bits, of those from after on if there are, or any with a seed.
static uint32_t pick(Block &b, uint32_t bits, uint32_t after) {
    if (b.seed) {
        for (uint32_t skip = draw(b) % uint32_t(__builtin_popcount(bits)); skip > 0; skip--)
            bits &= bits - 1;
    } else if (bits >> after << after) {
        bits = bits >> after << after;
    }
    return __builtin_ctz(bits);
}

// rest gives the processor to others, the longer the longer nothing has happened: a wait of a while lasts an eighth longer.
static void rest(Block &b) {
    if (b.progress || (b.seed && advance(b))) {
        b.progress = false;
        b.idle = 0;
        return;
    }
    uint64_t now = nanoseconds();
    if (b.idle == 0)
        b.idle = now;
    uint64_t pause = (now - b.idle) / 8;
    if (pause < 10000) {
        sched_yield();
        return;
    }
    timespec t = {0, pause < 1000000 ? long(pause) : 1000000};
    nanosleep(&t, nullptr);
}

[[noreturn]] static void stuck(Block &b) {
    fprintf(stderr, "emulator: block %u,%u,%u waits for itself for ever:\n", b.index.x, b.index.y, b.index.z);
    for (uint32_t i = 0; i < b.num_threads; i++) {
        Fiber &f = b.fibers[i];
        uint32_t same = i; // the last of those in the same place
        while (same + 1 < b.num_threads && b.fibers[same + 1].waits == f.waits && b.fibers[same + 1].mask == f.mask)
            same++;
        fprintf(stderr, "  threads %u to %u: ", i, same);
        if (f.waits == MEETS)
            fprintf(stderr, "a warp operation of lanes %#x\n", f.mask);
        else if (f.waits == ENDED)
            fprintf(stderr, "ended\n");
        else
            fprintf(stderr, "barrier %d\n", f.waits);
        i = same;
    }
    abort();
}

// leave runs another fiber, until this one is chosen again.
void leave(Block &b) {
    uint32_t from = b.current;
    if (b.copies && draw(b) % 4 == 0)
        advance(b);
    for (;;) {
        Warp &w = b.warps[b.at];
        if (b.seed ? b.ready : w.ready) {
            if (b.seed)
                b.at = pick(b, b.ready, 0);
            Warp &mine = b.warps[b.at];
            uint32_t lane = pick(b, mine.ready, 0);
            mine.ready &= ~(1u << lane);
            if (mine.ready == 0)
                b.ready &= ~(1u << b.at);
            b.current = b.at * 32 + lane;
            break;
        }
        if (b.ready) {
            b.at = pick(b, b.ready, b.at);
            continue;
        }
        if (b.polled == 0) {
            if (b.live != 0)
                stuck(b);
            weft_emu_switch(&b.fibers[from].sp, b.main); // all have ended
        }
        rest(b);
        b.ready = b.polled;
        b.polled = 0;
        for (uint32_t all = b.ready; all != 0; all &= all - 1) {
            Warp &some = b.warps[__builtin_ctz(all)];
            some.ready = some.polled;
            some.polled = 0;
        }
    }
    if (b.current != from)
        weft_emu_switch(&b.fibers[from].sp, b.fibers[b.current].sp);
}

// wake makes lanes of a warp ready.
void wake(Block &b, uint32_t warp, uint32_t lanes) {
    if (lanes == 0)
        return;
    b.warps[warp].ready |= lanes;
    b.ready |= 1u << warp;
    for (uint32_t all = lanes; all != 0; all &= all - 1)
        b.fibers[warp * 32 + __builtin_ctz(all)].waits = RUNS;
}

void poll() {
    Block &b = block();
    b.warps[b.at].polled |= 1u << b.current % 32;
    b.polled |= 1u << b.at;
    leave(b);
}

void step() {
    Block &b = block();
    if (b.seed && draw(b) % 4 == 0)
        poll();
}

uint64_t nanoseconds() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return uint64_t(t.tv_sec) * 1000000000u + t.tv_nsec;
}

void fail(const char *what, uint64_t a, uint64_t b) {
    Block &k = block();
    fprintf(stderr, "emulator: block %u,%u,%u thread %u: %s (%#llx, %#llx)\n", k.index.x, k.index.y, k.index.z, k.current, what,
            (unsigned long long)a, (unsigned long long)b);
    abort();
}

} // namespace weft_emu
