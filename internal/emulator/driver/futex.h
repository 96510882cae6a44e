// Waiting on a word without a mutex: the kernel compares the word, so a wake between the check and the wait is not lost.
#pragma once
#include <atomic>
#include <climits>
#include <cstdint>
#include <ctime>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

using Word = std::atomic<uint32_t>;

// park returns when the word is no longer now, or for no reason at all: callers look again.
inline void park(Word &word, uint32_t now) {
    syscall(SYS_futex, reinterpret_cast<uint32_t *>(&word), FUTEX_WAIT_PRIVATE, now, nullptr, nullptr, 0);
}

// park_for is park for at most so many nanoseconds.
inline void park_for(Word &word, uint32_t now, long ns) {
    timespec limit = {0, ns};
    syscall(SYS_futex, reinterpret_cast<uint32_t *>(&word), FUTEX_WAIT_PRIVATE, now, &limit, nullptr, 0);
}

inline void wake(Word &word, int num = INT_MAX) {
    syscall(SYS_futex, reinterpret_cast<uint32_t *>(&word), FUTEX_WAKE_PRIVATE, num, nullptr, nullptr, 0);
}
