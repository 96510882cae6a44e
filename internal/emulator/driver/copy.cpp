// Copies, fills and words that streams write and wait for.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <ctime>
#include <memory>
#include <sched.h>
#include <vector>

#include "capture.h"
#include "device.h"
#include "ranges.h"

namespace {
char *pointer(uintptr_t addr) { return reinterpret_cast<char *>(addr); }

// Rows copies rows of bytes. staged is what pageable memory held when the call was made.
struct Rows : Op {
    char *dst;
    const char *src;
    size_t dst_pitch, src_pitch, bytes, rows;
    std::vector<char> staged;
    Rows(char *d, const char *s, size_t n) : Op(Copy), dst(d), src(s), dst_pitch(n), src_pitch(n), bytes(n), rows(1) {}
    void run(Device &) override {
        for (size_t r = 0; r < rows; r++)
            memmove(dst + r * dst_pitch, src + r * src_pitch, bytes);
    }
    size_t span(size_t pitch) const { return rows ? (rows - 1) * pitch + bytes : 0; }
    void stage() {
        staged.assign(src, src + span(src_pitch));
        src = staged.data();
    }
};

template <class T> struct Set : Op {
    T *dst;
    T value;
    size_t n;
    Set(uintptr_t d, T v, size_t n) : Op(Fill), dst(reinterpret_cast<T *>(d)), value(v), n(n) {}
    void run(Device &) override {
        if (sizeof(T) == 1)
            memset(dst, int(value), n);
        else
            std::fill_n(dst, n, value);
    }
};

std::atomic<uint32_t> &word(uintptr_t addr) { return *reinterpret_cast<std::atomic<uint32_t> *>(addr); }

struct Write : Op {
    uintptr_t addr;
    uint32_t value;
    Write(uintptr_t a, uint32_t v) : Op(Value), addr(a), value(v) {}
    void run(Device &) override { word(addr).store(value); }
};

struct Await : Op {
    uintptr_t addr;
    uint32_t value, flags;
    Await(uintptr_t a, uint32_t v, uint32_t f) : Op(Value), addr(a), value(v), flags(f) {}
    bool met() const {
        const uint32_t now = word(addr).load();
        switch (flags & 3) {
        case 0: return int32_t(now - value) >= 0;
        case 1: return now == value;
        case 2: return (now & value) != 0;
        }
        return ~(now | value) != 0;
    }
    void run(Device &) override {
        for (int tries = 0; !met(); tries++) {
            if (tries < 100) {
                sched_yield();
                continue;
            }
            timespec pause = {0, 20000};
            nanosleep(&pause, nullptr);
        }
    }
};

// start submits a copy. Pageable memory is read before the call returns and is written before it returns.
int32_t start(std::shared_ptr<Rows> op, Handle stream) {
    bool known_dst, known_src;
    const bool dst = reachable(reinterpret_cast<uintptr_t>(op->dst), op->span(op->dst_pitch), &known_dst);
    const bool src = reachable(reinterpret_cast<uintptr_t>(op->src), op->span(op->src_pitch), &known_src);
    if ((known_dst && !dst) || (known_src && !src))
        return INVALID_VALUE;
    if (!known_src && !is_capturing(stream))
        op->stage();
    const bool wait = !known_dst && !is_capturing(stream);
    if (int32_t r = submit(stream, nullptr, std::move(op)))
        return r;
    std::shared_ptr<Stream> s;
    if (!wait || stream_of(stream, &s) != OK)
        return OK;
    s->wait(s->end());
    return OK;
}

int32_t check(uintptr_t addr, size_t bytes) {
    bool known;
    if (current() == nullptr)
        return INVALID_CONTEXT;
    return reachable(addr, bytes, &known) ? OK : INVALID_VALUE;
}
}  // namespace

API cuMemcpyAsync(uintptr_t dst, uintptr_t src, size_t bytes, Handle stream) {
    if (current() == nullptr)
        return INVALID_CONTEXT;
    if (bytes == 0)
        return OK;
    return start(std::make_shared<Rows>(pointer(dst), pointer(src), bytes), stream);
}

API cuMemcpy2DAsync_v2(const Copy2D *c, Handle stream) {
    if (current() == nullptr)
        return INVALID_CONTEXT;
    if (c->width == 0 || c->height == 0)
        return OK;
    constexpr uint32_t host = 1, array = 3;
    if (c->src_type == array || c->dst_type == array || c->width > c->src_pitch || c->width > c->dst_pitch)
        return INVALID_VALUE;
    const char *src = c->src_type == host ? static_cast<const char *>(c->src_host) : pointer(c->src);
    char *dst = c->dst_type == host ? static_cast<char *>(c->dst_host) : pointer(c->dst);
    auto op = std::make_shared<Rows>(dst + c->dst_y * c->dst_pitch + c->dst_x, src + c->src_y * c->src_pitch + c->src_x, c->width);
    op->dst_pitch = c->dst_pitch;
    op->src_pitch = c->src_pitch;
    op->rows = c->height;
    return start(std::move(op), stream);
}

API cuMemsetD8Async(uintptr_t dst, uint8_t value, size_t n, Handle stream) {
    if (int32_t r = check(dst, n))
        return r;
    return submit(stream, nullptr, std::make_shared<Set<uint8_t>>(dst, value, n));
}

API cuMemsetD32Async(uintptr_t dst, uint32_t value, size_t n, Handle stream) {
    if (int32_t r = check(dst, 4 * n); r != OK || dst % 4 != 0)
        return r ? r : INVALID_VALUE;
    return submit(stream, nullptr, std::make_shared<Set<uint32_t>>(dst, value, n));
}

API cuStreamWriteValue32_v2(Handle stream, uintptr_t addr, uint32_t value, uint32_t flags) {
    if (int32_t r = check(addr, 4); r != OK || addr % 4 != 0 || flags > 1)
        return r ? r : INVALID_VALUE;
    return submit(stream, nullptr, std::make_shared<Write>(addr, value));
}

API cuStreamWaitValue32_v2(Handle stream, uintptr_t addr, uint32_t value, uint32_t flags) {
    if (int32_t r = check(addr, 4); r != OK || addr % 4 != 0 || (flags & ~3u) != 0)
        return r ? r : INVALID_VALUE;
    return submit(stream, nullptr, std::make_shared<Await>(addr, value, flags));
}
