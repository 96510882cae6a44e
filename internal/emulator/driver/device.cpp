#include "device.h"

#include <cstdio>
#include <cstring>

#include "settings.h"

namespace {
std::atomic<bool> initialised;
thread_local Device *now;

struct Attribute { int32_t id, value; };
constexpr int32_t kib = 1024;
const Attribute attributes[] = {
    {1, 1024},             // threads of a block
    {2, 1024}, {3, 1024}, {4, 64},                      // its shape
    {5, 0x7fffffff}, {6, 65535}, {7, 65535},            // the grid's shape
    {8, 48 * kib},         // shared memory of a block
    {10, 32},              // threads of a warp
    {12, 64 * kib},        // registers of a block
    {13, 1000000},         // clock, kHz
    {38, 50 << 20},        // L2
    {39, 2048},            // threads of an SM
    {41, 1},               // unified addressing
    {75, 9}, {76, 0},      // compute capability
    {81, 228 * kib},       // shared memory of an SM
    {82, 64 * kib},        // registers of an SM
    {95, 1},               // cooperative launches
    {97, 227 * kib},       // shared memory of a block, opted in
    {102, 1}, {103, 1},    // virtual memory, and its file descriptors
    {106, 32},             // blocks of an SM
    {120, 0},              // clusters: kernels of several blocks with one shared memory are not emulated
    {132, 0},              // multicast
};

Device *known(int32_t dev) { return initialised ? device_at(dev) : nullptr; }
}  // namespace

bool Device::take(size_t bytes) {
    size_t before = used;
    do {
        if (bytes > settings().memory_bytes || before > settings().memory_bytes - bytes)
            return false;
    } while (!used.compare_exchange_weak(before, before + bytes));
    return true;
}

std::vector<Device *> &devices() {
    static auto &list = *[] {
        auto *l = new std::vector<Device *>;
        for (int i = 0; i < settings().gpus; i++) {
            l->push_back(new Device);
            l->back()->ordinal = i;
        }
        return l;
    }();
    return list;
}

Device *device_at(int32_t ordinal) {
    return ordinal >= 0 && size_t(ordinal) < devices().size() ? devices()[ordinal] : nullptr;
}

Device *current() { return now; }

API cuInit(uint32_t flags) {
    if (flags != 0)
        return INVALID_VALUE;
    if (devices().empty())
        return NO_DEVICE;
    initialised = true;
    return OK;
}

API cuDriverGetVersion(int32_t *version) {
    *version = 13000;
    return OK;
}

API cuDeviceGetCount(int32_t *n) {
    *n = int32_t(devices().size());
    return initialised ? OK : NOT_INITIALIZED;
}

API cuDeviceGet(int32_t *dev, int32_t ordinal) {
    *dev = ordinal;
    return !initialised ? NOT_INITIALIZED : device_at(ordinal) ? OK : INVALID_DEVICE;
}

API cuDeviceGetName(char *name, int32_t size, int32_t dev) {
    if (known(dev) == nullptr || size <= 0)
        return INVALID_DEVICE;
    snprintf(name, size_t(size), "emulated GPU");
    return OK;
}

API cuDeviceGetUuid_v2(void *uuid, int32_t dev) {
    if (known(dev) == nullptr)
        return INVALID_DEVICE;
    memcpy(uuid, "weft emulated ", 14);
    static_cast<char *>(uuid)[14] = 0;
    static_cast<char *>(uuid)[15] = char(dev);
    return OK;
}

API cuDeviceTotalMem_v2(size_t *bytes, int32_t dev) {
    *bytes = settings().memory_bytes;
    return known(dev) ? OK : INVALID_DEVICE;
}

API cuDeviceGetAttribute(int32_t *value, int32_t id, int32_t dev) {
    if (known(dev) == nullptr)
        return INVALID_DEVICE;
    if (id == 16) {
        *value = settings().sms;
        return OK;
    }
    for (const Attribute &a : attributes)
        if (a.id == id) {
            *value = a.value;
            return OK;
        }
    return INVALID_VALUE;
}

API cuDeviceGetPCIBusId(char *id, int32_t size, int32_t dev) {
    if (known(dev) == nullptr)
        return INVALID_DEVICE;
    snprintf(id, size_t(size), "0000:%02x:00.0", 0x40 + dev);
    return OK;
}

API cuDeviceCanAccessPeer(int32_t *can, int32_t dev, int32_t peer) {
    *can = dev != peer;
    return known(dev) && known(peer) ? OK : INVALID_DEVICE;
}

API cuDeviceGetP2PAttribute(int32_t *value, int32_t id, int32_t src, int32_t dst) {
    if (known(src) == nullptr || known(dst) == nullptr || src == dst)
        return INVALID_DEVICE;
    if (id < 1 || id > 4)
        return INVALID_VALUE;
    *value = id != 1;  // 1 is a rank, of which 0 is the best; the others say that it works
    return OK;
}

API cuDevicePrimaryCtxRetain(Handle *out, int32_t dev) {
    Device *d = known(dev);
    if (d == nullptr)
        return INVALID_DEVICE;
    std::lock_guard lock(d->mu);
    d->retained++;
    *out = d->context();
    return OK;
}

API cuDevicePrimaryCtxRelease_v2(int32_t dev) {
    Device *d = known(dev);
    if (d == nullptr)
        return INVALID_DEVICE;
    std::lock_guard lock(d->mu);
    if (d->retained == 0)
        return INVALID_CONTEXT;
    if (--d->retained == 0)
        d->peers.clear();
    return OK;
}

API cuCtxGetCurrent(Handle *out) {
    *out = now ? now->context() : 0;
    return initialised ? OK : NOT_INITIALIZED;
}

API cuCtxSetCurrent(Handle ctx) {
    if (ctx == 0) {
        now = nullptr;
        return OK;
    }
    for (Device *d : devices())
        if (d->context() == ctx) {
            now = d;
            return OK;
        }
    return INVALID_CONTEXT;
}

API cuCtxEnablePeerAccess(Handle peer, uint32_t flags) {
    if (now == nullptr || flags != 0)
        return now ? INVALID_VALUE : INVALID_CONTEXT;
    for (Device *d : devices())
        if (d->context() == peer) {
            if (d == now)
                return INVALID_DEVICE;
            std::lock_guard lock(now->mu);
            return now->peers.insert(d->ordinal).second ? OK : PEER_ACCESS_ALREADY_ENABLED;
        }
    return INVALID_CONTEXT;
}

API cuCtxGetStreamPriorityRange(int32_t *least, int32_t *greatest) {
    *least = 0;
    *greatest = -5;
    return now ? OK : INVALID_CONTEXT;
}

API cuMemGetInfo_v2(size_t *free, size_t *total) {
    if (now == nullptr)
        return INVALID_CONTEXT;
    *total = settings().memory_bytes;
    *free = *total - now->used;
    return OK;
}
