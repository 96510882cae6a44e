// A module by hand for driver.cpp: what libnvrtc's stand-in would make of small kernels, without its engine.
#include "../module.h"

#include <atomic>
#include <sched.h>

#define EXPORT extern "C" __attribute__((visibility("default")))

using Flag = std::atomic<uint32_t>;

EXPORT uint32_t answer;
uint32_t answer = 42;

namespace {
const uint32_t bytes[] = {8, 8, 4}, offsets[] = {0, 8, 16};
const weft_emu_kernel kernels[] = {
    {"arrive", 3, bytes, offsets, 0, 1024, 32},  // adds 1 to *a, then waits until *b is not less than n
    {"add", 3, bytes, offsets, 1024, 256, 32},   // *a += n, and *b = *a
};
}  // namespace

EXPORT const weft_emu_kernel *weft_emu_kernels(uint32_t *n) {
    *n = 2;
    return kernels;
}

EXPORT void weft_emu_block(uint32_t kernel, const uint32_t *, const uint32_t *, const uint32_t *, uint32_t, void *const *params) {
    auto *a = *static_cast<Flag *const *>(params[0]), *b = *static_cast<Flag *const *>(params[1]);
    const uint32_t n = *static_cast<const uint32_t *>(params[2]);
    if (kernel == 1) {
        b->store(a->fetch_add(n) + n);
        return;
    }
    a->fetch_add(1);
    while (b->load() < n)
        sched_yield();
}
