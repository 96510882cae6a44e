// What the environment says, read once.
#pragma once
#include <cstddef>
#include <cstdint>

struct Settings {
    int gpus;             // WEFT_EMULATOR_GPUS, 1
    int sms;              // WEFT_EMULATOR_SMS, 40: 24 ranks fit with a block each, eight with a few
    size_t memory_bytes;  // WEFT_EMULATOR_MEMORY in MiB, 8192: of each GPU
    uint32_t late_us;     // WEFT_EMULATOR_LATE, 0: blocks and operations begin up to so many microseconds late
    uint64_t seed;        // WEFT_EMULATOR_SEED, 1: of the delays
};

const Settings &settings();

// late sleeps for a random time below late_us, to shake the order in which things happen.
void late();
