// Events: points in the work of streams.
#include <ctime>

#include "capture.h"
#include "device.h"
#include "handles.h"

namespace {
// Mark is one record of an event.
struct Mark {
    Word reached{0};
    int64_t ns = 0;
    void wait() {
        while (reached.load(std::memory_order_acquire) == 0)
            park(reached, 0);
    }
};

struct Event {
    Device &device;
    const bool timing;
    std::mutex mu;
    std::shared_ptr<Mark> mark;  // the last record; null before the first
    Point captured;              // set when the last record was in a capture
    Event(Device &d, bool t) : device(d), timing(t) {}
};

auto &events = *new Handles<Event>;

int64_t now_ns() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * int64_t(1000000000) + t.tv_nsec;
}

struct RecordOp : Op {
    std::shared_ptr<Mark> mark;
    explicit RecordOp(std::shared_ptr<Mark> m) : Op(Record), mark(std::move(m)) {}
    void run(Device &) override {
        mark->ns = now_ns();
        mark->reached.store(1, std::memory_order_release);
        wake(mark->reached);
    }
};

struct WaitOp : Op {
    std::shared_ptr<Mark> mark;
    explicit WaitOp(std::shared_ptr<Mark> m) : Op(Wait), mark(std::move(m)) {}
    void run(Device &) override { mark->wait(); }
};

// last returns the record that a host call is about.
int32_t last(Handle handle, std::shared_ptr<Event> *event, std::shared_ptr<Mark> *mark) {
    *event = events.get(handle);
    if (*event == nullptr)
        return INVALID_HANDLE;
    std::lock_guard lock((*event)->mu);
    *mark = (*event)->mark;
    return (*event)->captured.set ? CAPTURED_EVENT : OK;
}
}  // namespace

API cuEventCreate(Handle *out, uint32_t flags) {
    Device *d = current();
    if (d == nullptr)
        return INVALID_CONTEXT;
    if ((flags & ~3u) != 0)
        return INVALID_VALUE;
    *out = events.add(std::make_shared<Event>(*d, (flags & 2) == 0));
    return OK;
}

API cuEventDestroy_v2(Handle event) { return events.take(event) ? OK : INVALID_HANDLE; }

API cuEventRecord(Handle event, Handle stream) {
    auto e = events.get(event);
    std::shared_ptr<Stream> s;
    if (e == nullptr)
        return INVALID_HANDLE;
    if (int32_t r = stream_of(stream, &s))
        return r;
    if (&s->device != &e->device)
        return INVALID_HANDLE;
    std::lock_guard lock(e->mu);
    if (capture_record(*s, &e->captured))
        return OK;
    e->captured = {};
    e->mark = std::make_shared<Mark>();
    return submit(stream, nullptr, std::make_shared<RecordOp>(e->mark));
}

API cuEventQuery(Handle event) {
    std::shared_ptr<Event> e;
    std::shared_ptr<Mark> m;
    if (int32_t r = refuse_while_capturing())
        return r;
    if (int32_t r = last(event, &e, &m))
        return r;
    return m == nullptr || m->reached.load(std::memory_order_acquire) ? OK : NOT_READY;
}

API cuEventSynchronize(Handle event) {
    std::shared_ptr<Event> e;
    std::shared_ptr<Mark> m;
    if (int32_t r = refuse_while_capturing())
        return r;
    if (int32_t r = last(event, &e, &m))
        return r;
    if (m != nullptr)
        m->wait();
    return OK;
}

API cuEventElapsedTime(float *ms, Handle start, Handle end) {
    std::shared_ptr<Event> a, b;
    std::shared_ptr<Mark> from, to;
    if (int32_t r = last(start, &a, &from))
        return r;
    if (int32_t r = last(end, &b, &to))
        return r;
    if (!a->timing || !b->timing || from == nullptr || to == nullptr)
        return INVALID_HANDLE;
    if (!from->reached.load(std::memory_order_acquire) || !to->reached.load(std::memory_order_acquire))
        return NOT_READY;
    *ms = float(double(to->ns - from->ns) / 1e6);
    return OK;
}

API cuStreamWaitEvent(Handle stream, Handle event, uint32_t flags) {
    auto e = events.get(event);
    std::shared_ptr<Stream> s;
    if (e == nullptr)
        return INVALID_HANDLE;
    if (int32_t r = stream_of(stream, &s))
        return r;
    if (flags != 0)
        return INVALID_VALUE;
    std::lock_guard lock(e->mu);
    bool done;
    if (int32_t r = capture_wait(s, e->captured, e->mark != nullptr, &done); r != OK || done)
        return r;
    return e->mark == nullptr ? OK : submit(stream, nullptr, std::make_shared<WaitOp>(e->mark));
}
