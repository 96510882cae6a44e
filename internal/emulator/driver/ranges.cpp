#include "ranges.h"

#include <map>
#include <mutex>
#include <shared_mutex>

namespace {
std::shared_mutex mu;
auto &ranges = *new std::map<uintptr_t, Range>;

// holding returns the range that holds addr. Under mu.
std::map<uintptr_t, Range>::iterator holding(uintptr_t addr) {
    auto it = ranges.upper_bound(addr);
    if (it == ranges.begin())
        return ranges.end();
    --it;
    return addr - it->first < it->second.bytes ? it : ranges.end();
}
}  // namespace

void add_range(const Range &r) {
    std::unique_lock lock(mu);
    ranges[r.base] = r;
}

std::optional<Range> find_range(uintptr_t addr) {
    std::shared_lock lock(mu);
    auto it = holding(addr);
    return it == ranges.end() ? std::nullopt : std::optional(it->second);
}

std::optional<Range> take_range(uintptr_t base, Range::Kind kind) {
    std::unique_lock lock(mu);
    auto it = ranges.find(base);
    if (it == ranges.end() || it->second.kind != kind)
        return std::nullopt;
    Range r = it->second;
    ranges.erase(it);
    return r;
}

bool overlaps_range(uintptr_t addr, size_t bytes) {
    std::shared_lock lock(mu);
    if (holding(addr) != ranges.end())
        return true;
    auto it = ranges.lower_bound(addr);
    return it != ranges.end() && it->first < addr + bytes;
}

void forget_ranges(uintptr_t from, size_t bytes, Range::Kind kind) {
    std::unique_lock lock(mu);
    for (auto it = ranges.lower_bound(from); it != ranges.end() && it->first < from + bytes;)
        it = it->second.kind == kind ? ranges.erase(it) : std::next(it);
}

bool reachable(uintptr_t addr, size_t bytes, bool *known) {
    std::shared_lock lock(mu);
    auto it = holding(addr);
    *known = it != ranges.end();
    if (!*known)
        return false;
    for (const uintptr_t end = addr + bytes;;) {
        const uintptr_t stop = it->second.base + it->second.bytes;
        if (stop >= end)
            return true;
        if (++it == ranges.end() || it->first != stop)
            return false;
    }
}
