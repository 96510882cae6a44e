// cuMemAlloc and host memory. An allocation ends where a page ends, but for less than 256 bytes, and the next page faults: reads
// and writes past the end do not go unnoticed. What lies between is filled with a pattern that is looked at when it is freed.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "arena.h"
#include "capture.h"
#include "device.h"
#include "ranges.h"
#include "stream.h"

namespace {
constexpr size_t alignment = 256, fill_limit = 4 << 20, fill_ends = 1 << 20;
constexpr unsigned char edge = 0xa5;

// fill poisons fresh memory; of very large ones the two ends, because pages that nobody touches cost nothing.
void fill(uintptr_t addr, size_t bytes) {
    auto *p = reinterpret_cast<char *>(addr);
    if (bytes <= fill_limit) {
        memset(p, poison, bytes);
        return;
    }
    memset(p, poison, fill_ends);
    memset(p + bytes - fill_ends, poison, fill_ends);
}

void check_edges(const Range &r) {
    auto *p = reinterpret_cast<unsigned char *>(r.map_base), *from = reinterpret_cast<unsigned char *>(r.base);
    for (; p < reinterpret_cast<unsigned char *>(r.map_base + r.map_bytes); p++) {
        if (p == from)
            p += r.bytes;
        if (p < reinterpret_cast<unsigned char *>(r.map_base + r.map_bytes) && *p != edge) {
            fprintf(stderr, "weft emulator: memory at %#zx of %zu bytes: something wrote %td bytes from its start\n", r.base, r.bytes, p - from);
            abort();
        }
    }
}

// place maps bytes so that they end, rounded up to the alignment, at the end of a page.
bool place(Range &r, int fd, size_t align) {
    const size_t need = round_up(r.bytes, align);
    r.map_base = map_guarded(fd, r.offset, r.map_bytes);
    if (r.map_base == 0)
        return false;
    r.base = r.map_base + r.map_bytes - need;
    memset(reinterpret_cast<void *>(r.map_base), edge, r.map_bytes - need);
    memset(reinterpret_cast<void *>(r.base + r.bytes), edge, need - r.bytes);
    fill(r.base, r.bytes);
    return true;
}
}  // namespace

API cuMemAlloc_v2(uintptr_t *out, size_t bytes) {
    Device *d = current();
    if (d == nullptr)
        return INVALID_CONTEXT;
    if (int32_t r = refuse_while_capturing())
        return r;
    if (bytes == 0)
        return INVALID_VALUE;
    Range r;
    r.bytes = bytes;
    r.device = d->ordinal;
    if (bytes > SIZE_MAX / 2 || !d->take(r.map_bytes = round_up(round_up(bytes, alignment), page_bytes())))
        return OUT_OF_MEMORY;
    Arena &arena = arena_of(d->ordinal);
    r.offset = arena.take(r.map_bytes);
    if (r.offset < 0 || !place(r, arena.fd(), alignment)) {
        d->give(r.map_bytes);
        return OUT_OF_MEMORY;
    }
    add_range(r);
    *out = r.base;
    return OK;
}

// Giving memory back waits for the kernels of the device, as measured on a GPU; allocating does not.
API cuMemFree_v2(uintptr_t addr) {
    Device *d = current();
    if (d == nullptr)
        return INVALID_CONTEXT;
    if (int32_t r = refuse_while_capturing())
        return r;
    if (addr == 0)
        return OK;
    auto known = find_range(addr);
    if (!known || known->kind != Range::Plain || known->base != addr)
        return INVALID_VALUE;
    drain(*device_at(known->device));
    auto r = take_range(addr, Range::Plain);
    if (!r)
        return INVALID_VALUE;
    check_edges(*r);
    unmap_guarded(r->map_base, r->map_bytes);
    arena_of(r->device).give(r->offset, r->map_bytes);
    device_at(r->device)->give(r->map_bytes);
    return OK;
}

API cuMemHostAlloc(uintptr_t *out, size_t bytes, uint32_t flags) {
    Device *d = current();
    if (d == nullptr)
        return INVALID_CONTEXT;
    if (int32_t r = refuse_while_capturing())
        return r;
    if (bytes == 0 || flags > 7)
        return INVALID_VALUE;
    if (bytes > SIZE_MAX / 2)
        return OUT_OF_MEMORY;
    Range r;
    r.bytes = bytes;
    r.kind = Range::Pinned;
    r.device = d->ordinal;
    r.map_bytes = round_up(bytes, page_bytes());
    if (!place(r, -1, page_bytes()))
        return OUT_OF_MEMORY;
    add_range(r);
    *out = r.base;
    return OK;
}

API cuMemFreeHost(uintptr_t addr) {
    Device *d = current();
    if (d == nullptr)
        return INVALID_CONTEXT;
    if (int32_t r = refuse_while_capturing())
        return r;
    auto known = find_range(addr);
    if (!known || known->kind != Range::Pinned || known->base != addr)
        return INVALID_VALUE;
    drain(*d);
    auto r = take_range(addr, Range::Pinned);
    if (!r)
        return INVALID_VALUE;
    check_edges(*r);
    unmap_guarded(r->map_base, r->map_bytes);
    return OK;
}

API cuMemHostRegister_v2(uintptr_t addr, size_t bytes, uint32_t) {
    Device *d = current();
    if (d == nullptr)
        return INVALID_CONTEXT;
    if (addr == 0 || bytes == 0)
        return INVALID_VALUE;
    if (overlaps_range(addr, bytes))
        return HOST_MEMORY_ALREADY_REGISTERED;
    Range r;
    r.base = r.map_base = addr;
    r.bytes = r.map_bytes = bytes;
    r.kind = Range::Registered;
    r.device = d->ordinal;
    add_range(r);
    return OK;
}

API cuMemHostUnregister(uintptr_t addr) {
    if (current() == nullptr)
        return INVALID_CONTEXT;
    return take_range(addr, Range::Registered) ? OK : HOST_MEMORY_NOT_REGISTERED;
}

API cuPointerGetAttribute(void *data, int32_t id, uintptr_t addr) {
    if (current() == nullptr)
        return INVALID_CONTEXT;
    auto r = find_range(addr);
    if (!r)
        return INVALID_VALUE;
    auto put = [&](auto value) { memcpy(data, &value, sizeof value); };
    switch (id) {
    case 1: put(device_at(r->device)->context()); return OK;
    case 2: put(int32_t(r->on_device() ? 2 : 1)); return OK;
    case 3: put(addr); return OK;
    case 4:
        if (r->on_device())
            return INVALID_VALUE;
        put(addr);
        return OK;
    case 8: put(int32_t(0)); return OK;
    case 9: put(int32_t(r->device)); return OK;
    case 11: put(r->base); return OK;
    case 12: put(r->bytes); return OK;
    case 13: put(int32_t(1)); return OK;
    }
    return NOT_SUPPORTED;
}
