#include "settings.h"

#include <atomic>
#include <cstdlib>
#include <unistd.h>

namespace {
uint64_t number(const char *name, uint64_t fallback) {
    const char *text = getenv(name);
    return text != nullptr && *text != 0 ? strtoull(text, nullptr, 10) : fallback;
}

uint64_t mix(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}
}  // namespace

const Settings &settings() {
    static const Settings s = {
        int(number("WEFT_EMULATOR_GPUS", 1)), int(number("WEFT_EMULATOR_SMS", 40)),
        size_t(number("WEFT_EMULATOR_MEMORY", 8192)) << 20, uint32_t(number("WEFT_EMULATOR_LATE", 0)),
        number("WEFT_EMULATOR_SEED", 1),
    };
    return s;
}

void late() {
    const Settings &s = settings();
    if (s.late_us == 0)
        return;
    static std::atomic<uint64_t> turn;
    usleep(mix(s.seed * 0x9e3779b97f4a7c15u + turn++) % s.late_us);
}
