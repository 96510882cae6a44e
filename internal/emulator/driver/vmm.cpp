// Virtual memory: addresses are reserved, memory is a file of its own, and mapping puts one behind the other. Nothing can be
// read or written before access is set.
#include <cstring>
#include <fcntl.h>
#include <map>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "arena.h"
#include "device.h"
#include "handles.h"
#include "ranges.h"

namespace {
constexpr size_t granularity = 2 << 20;

struct Physical {
    int fd = -1, device = -1;
    size_t bytes = 0;
    bool imported = false, shareable = false;
    ~Physical() {
        if (fd >= 0)
            close(fd);
        if (!imported && device >= 0)
            device_at(device)->give(bytes);
    }
};

auto &physicals = *new Handles<Physical>;

struct Mapping { size_t bytes; std::shared_ptr<Physical> memory; bool open; };
std::mutex mu;
auto &reserved = *new std::map<uintptr_t, size_t>;
auto &mapped = *new std::map<uintptr_t, Mapping>;

bool inside_reserved(uintptr_t addr, size_t bytes) {
    auto it = reserved.upper_bound(addr);
    if (it == reserved.begin())
        return false;
    --it;
    return addr - it->first < it->second && bytes <= it->second - (addr - it->first);
}

// poison_file fills the first bytes of fresh memory through its descriptor: pages that nobody touches cost nothing.
void poison_file(int fd, size_t bytes) {
    constexpr size_t limit = 2 << 20;
    const size_t n = bytes < limit ? bytes : limit;
    void *p = mmap(nullptr, n, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED)
        return;
    memset(p, poison, n);
    munmap(p, n);
}

void *pointer(uintptr_t addr) { return reinterpret_cast<void *>(addr); }

// hide puts nothing behind a range of reserved addresses.
void hide(uintptr_t addr, size_t bytes) {
    mmap(pointer(addr), bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}
}  // namespace

API cuMemGetAllocationGranularity(size_t *out, const AllocationProp *prop, int32_t) {
    if (prop == nullptr || prop->type != 1 || prop->location.type != 1)
        return INVALID_VALUE;
    *out = granularity;
    return device_at(prop->location.id) ? OK : INVALID_DEVICE;
}

API cuMemCreate(Handle *out, size_t bytes, const AllocationProp *prop, uint64_t flags) {
    if (prop == nullptr || prop->type != 1 || prop->location.type != 1 || (prop->handles & ~1) != 0 || flags != 0 ||
        bytes == 0 || bytes % granularity != 0)
        return INVALID_VALUE;
    Device *d = device_at(prop->location.id);
    if (d == nullptr)
        return INVALID_DEVICE;
    if (!d->take(bytes))
        return OUT_OF_MEMORY;
    auto p = std::make_shared<Physical>();
    p->device = d->ordinal;
    p->bytes = bytes;
    p->shareable = prop->handles == 1;
    p->fd = memory_file(d->ordinal, bytes);
    if (p->fd < 0)
        return OUT_OF_MEMORY;
    poison_file(p->fd, bytes);
    *out = physicals.add(p);
    return OK;
}

API cuMemRelease(Handle handle) { return physicals.take(handle) ? OK : INVALID_VALUE; }

API cuMemAddressReserve(uintptr_t *out, size_t bytes, size_t align, uintptr_t, uint64_t flags) {
    if (bytes == 0 || bytes % granularity != 0 || flags != 0 || (align & (align - 1)) != 0)
        return INVALID_VALUE;
    if (align < granularity)
        align = granularity;
    // Pages around the range fault; what alignment leaves over is given back.
    const size_t all = bytes + 2 * align;
    void *p = mmap(nullptr, all, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        return OUT_OF_MEMORY;
    const uintptr_t start = reinterpret_cast<uintptr_t>(p), base = round_up(start + 1, align);
    if (base - page_bytes() > start)
        munmap(p, base - page_bytes() - start);
    const uintptr_t end = base + bytes + page_bytes();
    if (start + all > end)
        munmap(pointer(end), start + all - end);
    std::lock_guard lock(mu);
    reserved[base] = bytes;
    *out = base;
    return OK;
}

API cuMemAddressFree(uintptr_t addr, size_t bytes) {
    std::lock_guard lock(mu);
    auto it = reserved.find(addr);
    if (it == reserved.end() || it->second != bytes)
        return INVALID_VALUE;
    auto m = mapped.lower_bound(addr);
    if (m != mapped.end() && m->first < addr + bytes)
        return INVALID_VALUE;
    reserved.erase(it);
    munmap(pointer(addr - page_bytes()), bytes + 2 * page_bytes());
    return OK;
}

API cuMemMap(uintptr_t addr, size_t bytes, size_t offset, Handle handle, uint64_t flags) {
    auto p = physicals.get(handle);
    if (p == nullptr || flags != 0 || offset != 0 || bytes == 0 || addr % granularity != 0 || bytes % granularity != 0 || bytes > p->bytes)
        return INVALID_VALUE;
    std::lock_guard lock(mu);
    if (!inside_reserved(addr, bytes))
        return INVALID_VALUE;
    auto next = mapped.lower_bound(addr);
    if (next != mapped.end() && next->first < addr + bytes)
        return INVALID_VALUE;
    if (next != mapped.begin()) {
        auto before = std::prev(next);
        if (before->first + before->second.bytes > addr)
            return INVALID_VALUE;
    }
    if (mmap(pointer(addr), bytes, PROT_NONE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, p->fd, 0) == MAP_FAILED)
        return OUT_OF_MEMORY;
    mapped[addr] = {bytes, p, false};
    return OK;
}

API cuMemSetAccess(uintptr_t addr, size_t bytes, const AccessDesc *access, size_t n) {
    bool some = false;
    for (size_t i = 0; i < n; i++) {
        if (access[i].location.type != 1 || device_at(access[i].location.id) == nullptr)
            return INVALID_DEVICE;
        some = some || access[i].flags == 3;
    }
    std::lock_guard lock(mu);
    uintptr_t at = addr;
    for (auto it = mapped.find(addr); at < addr + bytes; ++it) {
        if (it == mapped.end() || it->first != at || at + it->second.bytes > addr + bytes)
            return INVALID_VALUE;
        at += it->second.bytes;
    }
    if (mprotect(pointer(addr), bytes, some ? PROT_READ | PROT_WRITE : PROT_NONE) != 0)
        return INVALID_VALUE;
    for (auto it = mapped.find(addr); it != mapped.end() && it->first < at; ++it) {
        it->second.open = some;
        Range r;
        r.base = r.map_base = it->first;
        r.bytes = r.map_bytes = it->second.bytes;
        r.kind = Range::Mapped;
        r.device = it->second.memory->device;
        add_range(r);
    }
    return OK;
}

API cuMemUnmap(uintptr_t addr, size_t bytes) {
    std::vector<std::shared_ptr<Physical>> last;  // closed after the lock
    std::lock_guard lock(mu);
    auto it = mapped.find(addr);
    if (it == mapped.end())
        return INVALID_VALUE;
    size_t sum = 0;
    for (auto i = it; i != mapped.end() && i->first == addr + sum && sum < bytes; ++i)
        sum += i->second.bytes;
    if (sum != bytes)
        return INVALID_VALUE;
    forget_ranges(addr, bytes, Range::Mapped);
    hide(addr, bytes);
    while (it != mapped.end() && it->first < addr + bytes) {
        last.push_back(std::move(it->second.memory));
        it = mapped.erase(it);
    }
    return OK;
}

API cuMemExportToShareableHandle(void *out, Handle handle, int32_t kind, uint64_t flags) {
    auto p = physicals.get(handle);
    if (p == nullptr || kind != 1 || flags != 0 || !p->shareable)
        return INVALID_VALUE;
    int fd = fcntl(p->fd, F_DUPFD_CLOEXEC, 0);
    if (fd < 0)
        return OUT_OF_MEMORY;
    memcpy(out, &fd, sizeof fd);
    return OK;
}

API cuMemImportFromShareableHandle(Handle *out, uintptr_t fd, int32_t kind) {
    struct stat s;
    const int device = kind == 1 ? device_of(int(fd)) : -1;
    if (device_at(device) == nullptr || fstat(int(fd), &s) != 0)
        return INVALID_VALUE;
    auto p = std::make_shared<Physical>();
    p->device = device;
    p->imported = p->shareable = true;
    p->bytes = size_t(s.st_size);
    p->fd = fcntl(int(fd), F_DUPFD_CLOEXEC, 0);
    if (p->fd < 0)
        return OUT_OF_MEMORY;
    *out = physicals.add(p);
    return OK;
}
