// GPUs and their primary contexts.
#pragma once
#include <atomic>
#include <cstdint>
#include <mutex>
#include <set>
#include <vector>

#include "abi.h"
#include "multiprocessors.h"

struct Device {
    int ordinal = 0;
    Multiprocessors sms;
    std::atomic<size_t> used{0};  // bytes of memory
    std::mutex mu;
    int retained = 0;          // of the primary context, under mu
    std::set<int> peers;       // whose memory cuCtxEnablePeerAccess opened, under mu
    Handle context() const { return reinterpret_cast<Handle>(this); }
    // take accounts for bytes of memory; false when they are not free.
    bool take(size_t bytes);
    void give(size_t bytes) { used -= bytes; }
};

// devices returns all GPUs. A context's handle is the address of its Device.
std::vector<Device *> &devices();
Device *device_at(int32_t ordinal);  // null when there is none

// current returns the device of the thread's current context, or null.
Device *current();
