// Memory of another process: the handle names the process, its descriptor of the device's arena, and a place in it.
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <map>
#include <unistd.h>

#include "arena.h"
#include "device.h"
#include "ranges.h"

namespace {
struct Named {
    uint64_t magic;
    int64_t offset;
    uint64_t map_bytes, bytes;
    int32_t process, fd, device, pad;
};
static_assert(sizeof(Named) <= sizeof(IpcHandle), "handle");
constexpr uint64_t magic = 0x7765667469706301;

struct Opened { uintptr_t base; int times; };
std::mutex mu;
auto &opened = *new std::map<std::pair<int32_t, std::pair<int32_t, int64_t>>, Opened>;  // process, device and offset
}  // namespace

API cuIpcGetMemHandle(IpcHandle *handle, uintptr_t addr) {
    if (current() == nullptr)
        return INVALID_CONTEXT;
    auto r = find_range(addr);
    if (!r || r->kind != Range::Plain)
        return INVALID_VALUE;
    Named n = {magic, r->offset, r->map_bytes, r->bytes, int32_t(getpid()), arena_of(r->device).fd(), r->device, 0};
    memset(handle, 0, sizeof *handle);
    memcpy(handle, &n, sizeof n);
    return OK;
}

API cuIpcOpenMemHandle_v2(uintptr_t *out, IpcHandle handle, uint32_t flags) {
    if (current() == nullptr)
        return INVALID_CONTEXT;
    Named n;
    memcpy(&n, &handle, sizeof n);
    if (flags != 1 || n.magic != magic || device_at(n.device) == nullptr)
        return INVALID_VALUE;
    if (n.process == getpid())
        return INVALID_CONTEXT;
    std::lock_guard lock(mu);
    Opened &o = opened[{n.process, {n.device, n.offset}}];
    if (o.times > 0) {
        o.times++;
        *out = o.base;
        return OK;
    }
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", n.process, n.fd);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0 || device_of(fd) != n.device) {
        if (fd >= 0)
            close(fd);
        return INVALID_VALUE;
    }
    Range r;
    r.bytes = n.bytes;
    r.kind = Range::Imported;
    r.device = n.device;
    r.map_bytes = n.map_bytes;
    r.map_base = map_guarded(fd, n.offset, n.map_bytes);
    close(fd);
    if (r.map_base == 0)
        return OUT_OF_MEMORY;
    r.base = r.map_base + r.map_bytes - round_up(r.bytes, 256);
    add_range(r);
    o = {r.base, 1};
    *out = r.base;
    return OK;
}

API cuIpcCloseMemHandle(uintptr_t addr) {
    if (current() == nullptr)
        return INVALID_CONTEXT;
    std::lock_guard lock(mu);
    for (auto it = opened.begin(); it != opened.end(); ++it) {
        if (it->second.base != addr || it->second.times == 0)
            continue;
        if (--it->second.times > 0)
            return OK;
        opened.erase(it);
        if (auto r = take_range(addr, Range::Imported))
            unmap_guarded(r->map_base, r->map_bytes);
        return OK;
    }
    return INVALID_VALUE;
}
