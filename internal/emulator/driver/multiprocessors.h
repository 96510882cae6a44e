// Which blocks are resident. As on a GPU a block takes threads, shared memory and a slot of one SM until it ends, and blocks
// beyond what is free wait in the order of their launches. So a world whose waiting kernels do not fit stalls here too.
#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <vector>

#include "futex.h"

// Blocks is one run of a kernel.
struct Blocks {
    std::function<void(uint32_t index)> run;  // runs one block to its end
    uint32_t total = 0;
    uint32_t threads = 0, shared = 0;  // of one block
    uint32_t next = 0;                 // the first block that is not resident yet
    Word left{0};                      // blocks that have not ended
};

// occupancy returns how many blocks of threads and bytes of shared memory fit on one SM at once.
uint32_t occupancy(uint32_t threads, uint32_t shared);

class Multiprocessors {
  public:
    // run returns when all blocks have ended. Each has an OS thread while it is resident.
    void run(Blocks &blocks);

  private:
    struct Place { Blocks *blocks; uint32_t index, sm; };
    struct SM { uint32_t threads = 0, blocks = 0, shared = 0; };
    void place(std::vector<Place> &places);  // under mu_
    void carry(Place place, bool once);      // runs a block; unless once, also what then fits
    void begin(const std::vector<Place> &places, size_t from);

    std::mutex mu_;
    std::vector<SM> sms_;
    std::deque<Blocks *> waiting_;
};
