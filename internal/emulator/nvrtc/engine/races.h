// Finding races: two accesses of one place by two threads, one of them a write, that no barrier, fence or flag orders. The compiler
// tells of every access (-fsanitize=thread); see order.cpp, shadow.cpp and accesses.cpp.
#pragma once
#include "block.h"

#include <atomic>
#include <unordered_map>
#include <utility>
#include <vector>

namespace weft_emu {

enum : uint32_t { SLOTS = 64, SHARDS = 256, GRANULES = 1 << 24 };

// A thread of all blocks that run is slot << 10 | its number in the block. Time is a slot's: it goes on where a barrier completes
// or a thread releases, and never back.
struct Known {
    std::atomic<uint32_t> refs;
    uint32_t all[SLOTS];                              // what each slot's threads did up to this time
    std::vector<std::pair<uint32_t, uint32_t>> some;  // what single threads did, in order of the threads
};

struct Spin {
    std::atomic<uint32_t> word;
    void lock();
    void unlock() { word.store(0, std::memory_order_release); }
};

struct Shard {
    Spin mu;
    std::unordered_map<uintptr_t, Known *> words; // what a flag's or an atomic word's last writers gave with it
};

// Run is the block in a slot.
struct Run {
    char kernel[40];
    uint32_t block;
    char module[100];
};

// Races is one for the process, at an address that all modules know.
struct Races {
    std::atomic<uint32_t> ready;
    Spin mu;
    uint64_t used; // slots
    std::atomic<uint32_t> time[SLOTS];
    Run runs[SLOTS];
    Known *ended; // all that blocks which have ended did
    Shard shards[SHARDS];
    std::atomic<uint64_t> cells[GRANULES][4];
    std::atomic<uintptr_t> places[GRANULES][4]; // of the code
};

Races &races();

// For the engine; nothing where the module was compiled without.
void races_begin(Block &b, const char *kernel, const char *module);
void races_end(Block &b);
// together says that threads (by warp) met, and whether they are all of the block.
void together(Block &b, const uint32_t lanes[32], bool all);

void drop(Known *k);
Known *keep(Known *k);
bool knows(const Known *k, uint32_t thread, uint32_t clock);
void join(Known *&k, const Known *more);
// add makes k hold that a thread's doings up to clock are known.
void add(Known *&k, uint32_t thread, uint32_t clock);

// What flags bring and carry.
void fence(Block &b);
void publish(Block &b, uintptr_t word, bool release, bool more);
void observe(Block &b, uintptr_t word, bool acquire);

// access looks at what others did at a place.
void access(Block &b, uintptr_t at, uint32_t bytes, bool write, bool atomic, uintptr_t place);

} // namespace weft_emu
