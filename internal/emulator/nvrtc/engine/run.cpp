// weft_emu_block: a block from its first thread to its last.
#include "../../module.h"
#include "../device/table.h"
#include "races.h"

#include <errno.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <mutex>

extern "C" void weft_emu_switch(void **from, void *to);

namespace weft_emu {

void end();

// Spares are the regions of blocks that have ended, to be used again: their pages are there. All modules of the process share
// them, at a place that each knows, so that there are no more than blocks that ran at once: a module that cannot be unloaded yet,
// because its device is held, keeps none.
struct Spares {
    std::mutex mu; // zeros are a mutex that nobody holds
    uint32_t num;
    char *list[4096];
};

static Spares &spares() {
    static Spares *const all = [] {
        void *const where = (void *)0x5d0000000000;
        void *p = mmap(where, sizeof(Spares), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
        if (p != where && errno != EEXIST) { // else another module made it
            perror("emulator: no memory for a list");
            abort();
        }
        return (Spares *)where;
    }();
    return *all;
}

static char *new_region() {
    Spares &spare = spares();
    {
        std::lock_guard<std::mutex> hold(spare.mu);
        if (spare.num > 0)
            return spare.list[--spare.num];
    }
    char *all = (char *)mmap(nullptr, 2 * REGION, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (all == MAP_FAILED) {
        perror("emulator: no memory for a block");
        abort();
    }
    char *r = (char *)(((uintptr_t)all + REGION - 1) & ~(REGION - 1));
    if (r > all)
        munmap(all, r - all);
    munmap(r + REGION, all + REGION - r);
    return r;
}

static void keep_region(char *r) {
    Spares &spare = spares();
    {
        std::lock_guard<std::mutex> hold(spare.mu);
        if (spare.num < sizeof spare.list / sizeof *spare.list) {
            spare.list[spare.num++] = r;
            return;
        }
    }
    munmap(r, REGION);
}

// shared_variables are all __shared__ variables of the module: its thread-local segment, as the OS thread has it.
struct Segment {
    char *at;
    size_t bytes;
};
static thread_local Segment shared_variables;

static int find_segment(dl_phdr_info *info, size_t, void *out) {
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) &h = info->dlpi_phdr[i];
        if (h.p_type == PT_LOAD && (uintptr_t)out - (info->dlpi_addr + h.p_vaddr) < h.p_memsz)
            for (int k = 0; k < info->dlpi_phnum; k++)
                if (info->dlpi_phdr[k].p_type == PT_TLS && info->dlpi_tls_data)
                    shared_variables = {(char *)info->dlpi_tls_data, info->dlpi_phdr[k].p_memsz};
    }
    return 0;
}

// poison fills shared memory, which is not zero when a block begins.
static void poison() {
    if (!shared_variables.at)
        dl_iterate_phdr(find_segment, (void *)&weft_emu_block);
    Segment s = shared_variables;
    memset(s.at, 0xcb, s.bytes);
    asm volatile("" : "+m"(shared_variables)); // it lies in that segment too
    shared_variables = s;
}

static void enter() {
    Block &b = block();
    b.body(b.params);
    end();
}

static uint64_t seed_of(const uint32_t index[3]) {
    static const uint64_t given = [] {
        const char *s = getenv("WEFT_EMULATOR_SEED");
        return s ? strtoull(s, nullptr, 10) : 0;
    }();
    if (given == 0)
        return 0;
    uint64_t x = given * 0x9e3779b97f4a7c15u + nanoseconds() + index[0] * 0xbf58476d1ce4e5b9u + index[1] + index[2];
    return x ? x : 1;
}

// linger ends a block some milliseconds late, now and then: until then a peer's next kernel must know what this one did by
// flags, since it does not know it by this one's end.
static void linger() {
    uint64_t x = nanoseconds() * 0x9e3779b97f4a7c15u;
    if (x >> 62 == 0)
        usleep(2000 + x % 4096);
}

static Three three(const uint32_t v[3]) { return {v[0], v[1], v[2]}; }

} // namespace weft_emu

using namespace weft_emu;

extern "C" __attribute__((visibility("default"))) void weft_emu_block(uint32_t kernel, const uint32_t grid[3], const uint32_t block[3],
                                                                      const uint32_t index[3], uint32_t dynamic_shared, void *const *params) {
    uint32_t n = block[0] * block[1] * block[2];
    if (n == 0 || n > MAX_THREADS || dynamic_shared > MAX_DYNAMIC) {
        fprintf(stderr, "emulator: a block of %u threads and %u bytes of dynamic shared memory\n", n, dynamic_shared);
        abort();
    }
    poison();
    char *region = new_region();
    Block &b = *(Block *)region;
    memset(&b, 0, offsetof(Block, fibers));
    memset(region + DYNAMIC, 0xcd, dynamic_shared);
    b.grid = three(grid);
    b.block = three(block);
    b.index = three(index);
    b.num_threads = b.live = n;
    b.dynamic_bytes = dynamic_shared;
    b.body = weft_emu_bodies[kernel];
    b.params = params;
    b.seed = seed_of(index);
    for (uint32_t w = 0; w < 32; w++) {
        Warp &x = b.warps[w];
        x.live = n >= (w + 1) * 32 ? ~0u : n > w * 32 ? (1u << n % 32) - 1 : 0;
        x.ready = x.live;
        x.polled = x.active = 0;
        if (x.live)
            b.ready |= 1u << w;
    }
    for (uint32_t i = 0; i < n; i++) {
        Fiber &f = b.fibers[i];
        f.thread = {i % block[0], i / block[0] % block[1], i / block[0] / block[1]};
        f.waits = RUNS;
        f.mask = f.group = 0;
        f.known = f.released = f.pending = nullptr;
        void **top = (void **)((uintptr_t)(region + STACKS + (i + 1) * STACK) & ~uintptr_t(15)) - 1;
        *top = nullptr; // where the address of a caller of enter would be
        *--top = (void *)enter;
        f.sp = top - 6; // the registers that a switch takes from the stack
    }
    b.warps[0].ready &= ~1u;
    if (b.warps[0].ready == 0)
        b.ready &= ~1u;
    uint32_t num;
    races_begin(b, weft_emu_kernels(&num)[kernel].name, weft_emu_races);
    weft_emu_switch(&b.main, b.fibers[0].sp);
    if (b.races)
        linger();
    races_end(b);
    keep_region(region);
}
