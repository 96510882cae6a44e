// What is known about addresses: which ranges are memory that kernels may use, and whose.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>

struct Range {
    enum Kind { Plain, Imported, Mapped, Pinned, Registered, Global };
    uintptr_t base = 0;
    size_t bytes = 0;  // what was asked for
    Kind kind = Plain;
    int device = 0;
    uintptr_t map_base = 0;  // the mapping that holds it, whole pages
    size_t map_bytes = 0;
    int64_t offset = 0;  // in the device's arena: Plain
    bool on_device() const { return kind != Pinned && kind != Registered; }
};

void add_range(const Range &r);
std::optional<Range> find_range(uintptr_t addr);                       // that holds addr
std::optional<Range> take_range(uintptr_t base, Range::Kind kind);     // that begins at base: no longer known
bool overlaps_range(uintptr_t addr, size_t bytes);
void forget_ranges(uintptr_t from, size_t bytes, Range::Kind kind);    // those that begin there

// reachable reports whether all bytes from addr on are in known ranges, which may follow each other. known is false when addr is
// in none: pageable memory of the host, as far as anyone can tell.
bool reachable(uintptr_t addr, size_t bytes, bool *known);
