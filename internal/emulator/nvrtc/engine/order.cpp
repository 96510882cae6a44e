// What happened before what: each thread knows up to which time it has seen each other thread's doings. Barriers, __syncwarp, fences
// with flags, and the ends of kernels hand that on; shuffles and ballots do not. A kernel knows all that blocks did which ended
// before it began: streams and events are taken to be in order.
#include "races.h"

#include <algorithm>
#include <new>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

namespace weft_emu {

void Spin::lock() {
    while (word.exchange(1, std::memory_order_acquire) != 0)
        sched_yield();
}

static Known *make(const Known *like) {
    Known *k = new Known;
    k->refs = 1;
    if (like) {
        memcpy(k->all, like->all, sizeof k->all);
        k->some = like->some;
    } else {
        memset(k->all, 0, sizeof k->all);
    }
    return k;
}

Known *keep(Known *k) {
    if (k)
        k->refs.fetch_add(1, std::memory_order_relaxed);
    return k;
}

void drop(Known *k) {
    if (k && k->refs.fetch_sub(1, std::memory_order_acq_rel) == 1)
        delete k;
}

// own makes *k the caller's alone.
static void own(Known *&k) {
    if (k && k->refs.load(std::memory_order_acquire) == 1)
        return;
    Known *mine = make(k);
    drop(k);
    k = mine;
}

bool knows(const Known *k, uint32_t thread, uint32_t clock) {
    if (clock <= k->all[thread >> 10])
        return true;
    auto at = std::lower_bound(k->some.begin(), k->some.end(), std::make_pair(thread, uint32_t(0)));
    return at != k->some.end() && at->first == thread && clock <= at->second;
}

static bool covers(const Known *k, const Known *more) {
    for (uint32_t i = 0; i < SLOTS; i++)
        if (k->all[i] < more->all[i])
            return false;
    for (auto &x : more->some)
        if (!knows(k, x.first, x.second))
            return false;
    return true;
}

void join(Known *&k, const Known *more) {
    if (!more || k == more || (k && covers(k, more)))
        return;
    own(k);
    for (uint32_t i = 0; i < SLOTS; i++)
        k->all[i] = std::max(k->all[i], more->all[i]);
    std::vector<std::pair<uint32_t, uint32_t>> merged;
    auto put = [&](std::pair<uint32_t, uint32_t> x) {
        if (x.second <= k->all[x.first >> 10])
            return;
        if (!merged.empty() && merged.back().first == x.first)
            merged.back().second = std::max(merged.back().second, x.second);
        else
            merged.push_back(x);
    };
    auto a = k->some.begin(), b = k->some.end();
    for (auto &x : more->some) {
        for (; a != b && a->first <= x.first; ++a)
            put(*a);
        put(x);
    }
    for (; a != b; ++a)
        put(*a);
    k->some = std::move(merged);
}

void add(Known *&k, uint32_t thread, uint32_t clock) {
    own(k);
    auto at = std::lower_bound(k->some.begin(), k->some.end(), std::make_pair(thread, uint32_t(0)));
    if (at != k->some.end() && at->first == thread)
        at->second = std::max(at->second, clock);
    else
        k->some.insert(at, {thread, clock});
}

Races &races() {
    static Races *const all = [] {
        void *const where = (void *)0x5e0000000000;
        void *p = mmap(where, sizeof(Races), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
        Races *r = (Races *)where;
        if (p == where) {
            for (Shard &s : r->shards)
                new (&s) Shard();
            r->ended = make(nullptr);
            r->ready = 1;
        }
        while (r->ready == 0) // another module makes it
            sched_yield();
        return r;
    }();
    return *all;
}

void races_begin(Block &b, const char *kernel, const char *module) {
    b.races = module != nullptr;
    if (!module)
        return;
    Races &r = races();
    r.mu.lock();
    if (~r.used == 0) {
        fprintf(stderr, "emulator: races are looked for in at most %u blocks at a time; use fewer ranks or WEFT_EMULATOR_SMS=%u\n", SLOTS, SLOTS);
        abort();
    }
    b.slot = __builtin_ctzll(~r.used);
    r.used |= uint64_t(1) << b.slot;
    r.time[b.slot]++;
    snprintf(r.runs[b.slot].kernel, sizeof r.runs[b.slot].kernel, "%s", kernel);
    r.runs[b.slot].block = b.index.x;
    snprintf(r.runs[b.slot].module, sizeof r.runs[b.slot].module, "%s", module);
    for (uint32_t i = 0; i < b.num_threads; i++) {
        Fiber &f = b.fibers[i];
        f.known = keep(r.ended);
        f.released = keep(r.ended);
        f.pending = nullptr;
    }
    r.mu.unlock();
}

void races_end(Block &b) {
    if (!b.races)
        return;
    Races &r = races();
    r.mu.lock();
    own(r.ended);
    r.ended->all[b.slot] = r.time[b.slot];
    const Known *last = nullptr;
    for (uint32_t i = 0; i < b.num_threads; i++) {
        Fiber &f = b.fibers[i];
        if (f.known != last) // most share one; what they knew, later kernels know
            join(r.ended, f.known);
        last = f.known;
        drop(f.known);
        drop(f.released);
        drop(f.pending);
    }
    r.used &= ~(uint64_t(1) << b.slot);
    r.mu.unlock();
}

void together(Block &b, const uint32_t lanes[32], bool all) {
    if (!b.races)
        return;
    uint32_t now = races().time[b.slot];
    Known *k = nullptr;
    for (uint32_t w = 0; w < 32; w++)
        for (uint32_t rest = lanes[w]; rest != 0; rest &= rest - 1)
            join(k, b.fibers[w * 32 + __builtin_ctz(rest)].known);
    own(k);
    if (all)
        k->all[b.slot] = now;
    for (uint32_t w = 0; w < 32; w++)
        for (uint32_t rest = lanes[w]; rest != 0; rest &= rest - 1) {
            uint32_t i = w * 32 + __builtin_ctz(rest);
            if (!all)
                add(k, b.slot << 10 | i, now);
        }
    for (uint32_t w = 0; w < 32; w++)
        for (uint32_t rest = lanes[w]; rest != 0; rest &= rest - 1) {
            Fiber &f = b.fibers[w * 32 + __builtin_ctz(rest)];
            drop(f.known);
            f.known = keep(k);
        }
    drop(k);
    races().time[b.slot]++;
}

// release lets the running thread's own doings up to now go with what it knows.
static void release(Block &b) {
    add(b.fibers[b.current].known, b.slot << 10 | b.current, races().time[b.slot]++);
}

void fence(Block &b) {
    if (!b.races)
        return;
    Fiber &f = b.fibers[b.current];
    join(f.known, f.pending);
    release(b);
    drop(f.released);
    f.released = keep(f.known);
}

static Shard &shard(uintptr_t word) { return races().shards[(word >> 3 ^ word >> 11) % SHARDS]; }

// publish is for the moment before a store. more: an atomic operation, which hands on what the word had too.
void publish(Block &b, uintptr_t word, bool release_it, bool more) {
    if (!b.races)
        return;
    Fiber &f = b.fibers[b.current];
    if (release_it)
        release(b);
    Shard &s = shard(word);
    s.mu.lock();
    Known *&at = s.words[word];
    if (more) {
        join(at, release_it ? f.known : f.released);
    } else {
        drop(at);
        at = keep(release_it ? f.known : f.released);
    }
    s.mu.unlock();
}

// observe is for the moment after a load.
void observe(Block &b, uintptr_t word, bool acquire) {
    if (!b.races)
        return;
    Shard &s = shard(word);
    s.mu.lock();
    auto it = s.words.find(word);
    Known *k = it == s.words.end() ? nullptr : keep(it->second);
    s.mu.unlock();
    Fiber &f = b.fibers[b.current];
    join(acquire ? f.known : f.pending, k);
    drop(k);
}

} // namespace weft_emu
