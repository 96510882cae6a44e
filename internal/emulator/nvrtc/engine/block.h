// A block while it runs: its threads are fibers with small stacks, all in one aligned region of memory, so that a thread finds
// itself and its block by its stack pointer alone.
//
//	region: | Block ... | dynamic shared memory | stack 0 | stack 1 | ... | stack 1023 |
#pragma once
#include <stdint.h>

namespace weft_emu {

struct Three {
    unsigned x, y, z;
};

enum : uintptr_t {
    REGION = uintptr_t(1) << 27,      // bytes, and their alignment
    DYNAMIC = uintptr_t(2) << 20,     // where dynamic shared memory begins
    STACKS = uintptr_t(4) << 20,      // where stacks begin
    STACK = (64 << 10) + 512,         // no power of two: tops of stacks would share a few lines of the cache
    MAX_DYNAMIC = uintptr_t(1) << 20, // bytes
    MAX_THREADS = 1024,
    NUM_BARRIERS = 16
};

struct Known;

// Fiber is a CUDA thread.
struct Fiber {
    void *sp;      // while another one runs
    Three thread;  // threadIdx
    uint32_t group; // of bulk stores that it is filling
    int waits;     // for messages: RUNS, a barrier's number, MEETS or ENDED
    uint32_t mask; // of the warp operation that it waits in
    // Where races are looked for: what it knows of others, what its latest fence gives to later stores, what loads without order
    // have brought for its next fence.
    Known *known, *released, *pending;
};

enum { RUNS = -1, MEETS = -2, ENDED = -3 };

// Meet is a warp operation: the lanes of a mask come together, and each takes its answer.
struct Meet {
    uint32_t mask, arrived, rest; // rest: those that have not taken their answer
    int op;
    bool complete;
    uint64_t value[32];
};

// Warp holds its lanes as masks. A lane that is neither ready nor polled waits for others of its block, or has ended.
struct Warp {
    uint32_t live, ready, polled, active; // active: which meets are in use
    Meet meets[32];
};

// Barrier is bar.sync of one number.
struct Barrier {
    uint32_t wanted, arrived, phase; // wanted 0: all threads
    uint32_t masks[32];              // who has come, by warp
    uint32_t holds[2];               // for how many the condition holds, by phase
};

// Mbarrier is the 8 bytes of a barrier of bulk copies.
struct Mbarrier {
    uint16_t num; // arrivals that a phase takes
    uint16_t missing : 15, phase : 1;
    int bytes; // that are missing
};
static_assert(sizeof(Mbarrier) == 8, "an mbarrier");

// Copy is a bulk copy under way: a load, or a store that waits to be read or to be written.
struct Copy {
    Copy *next;
    void *to;
    const void *from; // null: it has been read, and lies in read
    void *read;
    uint32_t bytes, thread, group; // the thread's group of stores
    Mbarrier *barrier;             // of a load
};

struct Block {
    Three grid, block, index; // gridDim, blockDim, blockIdx
    uint32_t num_threads, live, dynamic_bytes;
    uint32_t current, at;   // the running fiber, and its warp
    uint32_t ready, polled; // warps with such lanes
    uint64_t idle;          // since when all that ran only looked, in nanoseconds; 0: somebody did more
    bool progress;          // somebody did more than look in this round
    bool races;             // races are looked for
    uint32_t slot;          // its number then
    uint64_t seed;          // 0: lanes run in order, bulk copies are done at once
    Copy *copies;           // in the order in which they were begun
    void *main;             // the stack pointer of weft_emu_block
    void (*body)(void *const *);
    void *const *params;
    Barrier barriers[NUM_BARRIERS];
    Fiber fibers[MAX_THREADS];
    Warp warps[32];
};

static_assert(sizeof(Block) <= DYNAMIC && STACKS + MAX_THREADS * STACK <= REGION, "the region is too small");

inline uintptr_t stack_pointer() {
    uintptr_t sp;
    asm("mov %%rsp, %0" : "=r"(sp));
    return sp;
}
inline Block &block() { return *(Block *)(stack_pointer() & ~(REGION - 1)); }
inline uint32_t thread() { return uint32_t(stack_pointer() % REGION - STACKS) / uint32_t(STACK); }
inline Fiber &self() { return block().fibers[thread()]; }
inline uint32_t lane() { return thread() % 32; }

// What a thread can ask of the engine; see the files of the same names.

// poll lets the others run: after a look at memory that others of this process may write.
void poll();
// step is a poll now and then, where a seed asks for other orders.
void step();
// barrier waits for threads threads (0: all that have not ended) and says for how many the condition held.
uint32_t barrier(uint32_t number, uint32_t threads, bool condition);
// meet brings lanes together. Answers: SHUFFLE the value of lane arg, BALLOT the lanes with a value other than 0, MATCH those
// with the same value.
enum { SYNC, SHUFFLE, BALLOT, MATCH };
uint64_t meet(uint32_t mask, int op, uint64_t value, uint32_t arg);
// bulk begins a copy: a load where there is a barrier, else a store of the thread's present group.
void bulk(void *to, const void *from, uint32_t bytes, Mbarrier *barrier);
// The barriers of ptx.cuh.
void mbarrier_init(Mbarrier &m, uint32_t n);
void mbarrier_arrive(Mbarrier &m, uint32_t bytes);
bool mbarrier_passed(Mbarrier &m, uint32_t parity);
// commit ends the thread's group of stores. bulk_read waits until all but its newest groups have been read, bulk_write until all
// are written.
void commit();
void bulk_read(uint32_t newest);
void bulk_write();
// fail ends the process with a line about the running thread.
[[noreturn]] void fail(const char *what, uint64_t a = 0, uint64_t b = 0);
uint64_t nanoseconds();

} // namespace weft_emu
