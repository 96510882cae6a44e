#include "capture.h"

#include <algorithm>
#include <atomic>
#include <unistd.h>

#include "device.h"
#include "graph.h"

namespace {
std::mutex mu;
std::atomic<int> num_active;  // captures that have begun and not ended: most calls look no further
auto &active = *new std::vector<std::shared_ptr<Capture>>;

int32_t invalidate(Capture &c, int32_t why) {
    c.invalid = true;
    return why;
}

void add_tail(std::vector<uint32_t> &tail, const std::vector<uint32_t> &more) {
    for (uint32_t n : more)
        if (std::find(tail.begin(), tail.end(), n) == tail.end())
            tail.push_back(n);
}

void leave(Capture &c) {  // all streams go on as before
    for (auto &s : c.streams) {
        s->capture = nullptr;
        s->tail.clear();
    }
    c.streams.clear();
    c.ended = true;
    active.erase(std::remove_if(active.begin(), active.end(), [&](auto &a) { return a.get() == &c; }), active.end());
    num_active--;
}
}  // namespace

int32_t submit(Handle handle, Device *device, std::shared_ptr<Op> op) {
    std::shared_ptr<Stream> s;
    if (int32_t r = stream_of(handle, &s))
        return r;
    if (device != nullptr && &s->device != device)
        return INVALID_HANDLE;
    if (num_active.load() != 0) {
        std::lock_guard lock(mu);
        if (Capture *c = s->capture.get()) {
            if (c->invalid)
                return CAPTURE_INVALIDATED;
            c->nodes.push_back({std::move(op), s->tail});
            s->tail = {uint32_t(c->nodes.size() - 1)};
            return OK;
        }
        if (handle <= 1)
            for (auto &c : active)
                for (auto &other : c->streams)
                    if (other->blocking && &other->device == &s->device)
                        return invalidate(*c, CAPTURE_IMPLICIT);
    }
    enqueue_ordered(*s, std::move(op));
    return OK;
}

int32_t refuse_captured(Stream &s) {
    if (num_active.load() == 0)
        return OK;
    std::lock_guard lock(mu);
    return s.capture ? invalidate(*s.capture, CAPTURE_UNSUPPORTED) : OK;
}

int32_t refuse_while_capturing() {
    if (num_active.load() == 0)
        return OK;
    std::lock_guard lock(mu);
    int32_t r = OK;
    for (auto &c : active)
        if (c->mode == 0 || (c->mode == 1 && c->thread == gettid()))
            r = invalidate(*c, CAPTURE_UNSUPPORTED);
    return r;
}

bool capture_record(Stream &s, Point *point) {
    if (num_active.load() == 0)
        return false;
    std::lock_guard lock(mu);
    if (s.capture == nullptr)
        return false;
    *point = {s.capture, s.tail, true};
    return true;
}

int32_t capture_wait(const std::shared_ptr<Stream> &s, const Point &point, bool plain, bool *done) {
    *done = false;
    if (num_active.load() == 0 && !point.set)
        return OK;
    std::lock_guard lock(mu);
    auto from = point.set ? point.capture.lock() : nullptr;
    if (s->capture == nullptr && !point.set)
        return OK;
    *done = true;
    if (point.set && (from == nullptr || from->ended))
        return s->capture ? invalidate(*s->capture, CAPTURE_ISOLATION) : CAPTURED_EVENT;
    if (!point.set)  // an event that was never recorded orders nothing
        return plain ? invalidate(*s->capture, CAPTURE_ISOLATION) : OK;
    if (s->capture != nullptr && s->capture != from) {
        invalidate(*from, CAPTURE_MERGE);
        return invalidate(*s->capture, CAPTURE_MERGE);
    }
    if (s->capture == nullptr) {
        s->capture = from;
        from->streams.push_back(s);
    }
    add_tail(s->tail, point.tail);
    return from->invalid ? CAPTURE_INVALIDATED : OK;
}

bool is_capturing(Handle handle) {
    std::shared_ptr<Stream> s;
    if (num_active.load() == 0 || stream_of(handle, &s) != OK)
        return false;
    std::lock_guard lock(mu);
    return s->capture != nullptr;
}

API cuStreamIsCapturing(Handle handle, int32_t *status) {
    std::shared_ptr<Stream> s;
    if (int32_t r = stream_of(handle, &s))
        return r;
    std::lock_guard lock(mu);
    *status = !s->capture ? 0 : s->capture->invalid ? 2 : 1;
    return OK;
}

API cuStreamBeginCapture_v2(Handle handle, int32_t mode) {
    std::shared_ptr<Stream> s;
    if (int32_t r = stream_of(handle, &s))
        return r;
    if (handle <= 1)
        return CAPTURE_UNSUPPORTED;
    if (mode < 0 || mode > 2)
        return INVALID_VALUE;
    std::lock_guard lock(mu);
    if (s->capture != nullptr)
        return invalidate(*s->capture, CAPTURE_UNSUPPORTED);
    auto c = std::make_shared<Capture>();
    c->origin = s.get();
    c->device = &s->device;
    c->mode = mode;
    c->thread = gettid();
    c->streams.push_back(s);
    s->capture = c;
    s->tail.clear();
    active.push_back(c);
    num_active++;
    return OK;
}

API cuStreamEndCapture(Handle handle, Handle *graph) {
    std::shared_ptr<Stream> s;
    if (int32_t r = stream_of(handle, &s))
        return r;
    *graph = 0;
    std::lock_guard lock(mu);
    auto c = s->capture;
    if (c == nullptr)
        return INVALID_VALUE;
    if (c->mode != 2 && c->thread != gettid())
        return CAPTURE_WRONG_THREAD;
    if (c->origin != s.get())
        return invalidate(*c, CAPTURE_UNMATCHED);
    // Every node must be one that the origin's end follows, directly or not.
    std::vector<bool> joined(c->nodes.size());
    for (uint32_t n : s->tail)
        joined[n] = true;
    bool all = true;
    for (size_t n = c->nodes.size(); n-- > 0;) {
        all = all && joined[n];
        for (uint32_t before : c->nodes[n].after)
            joined[before] = true;
    }
    const bool invalid = c->invalid;
    leave(*c);
    if (invalid || !all)
        return invalid ? CAPTURE_INVALIDATED : CAPTURE_UNJOINED;
    *graph = add_graph(*c->device, std::move(c->nodes));
    return OK;
}
