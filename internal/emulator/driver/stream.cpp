#include "stream.h"

#include <map>
#include <unistd.h>

#include "capture.h"
#include "device.h"
#include "handles.h"
#include "settings.h"
#include "threads.h"

namespace {
// How long a query waits: callers that ask again and again leave the cores to the kernels.
constexpr long query_ns = 30000;

auto &streams = *new Handles<Stream>;

// What runs or may run on a device, also after its handle has ended.
struct Running {
    std::vector<std::weak_ptr<Stream>> streams;
    std::shared_ptr<Stream> legacy;
    std::map<pid_t, std::shared_ptr<Stream>> of_thread;
};
std::mutex mu;
auto &running = *new std::map<Device *, Running>;

std::shared_ptr<Stream> make(Device &d, bool blocking) {  // under mu
    auto s = std::make_shared<Stream>(d, blocking);
    auto &list = running[&d].streams;
    for (auto &w : list)
        if (w.expired()) {
            w = s;
            return s;
        }
    list.push_back(s);
    return s;
}

std::vector<std::shared_ptr<Stream>> streams_of(Device &d) {
    std::vector<std::shared_ptr<Stream>> list;
    std::lock_guard lock(mu);
    for (auto &w : running[&d].streams)
        if (auto s = w.lock())
            list.push_back(std::move(s));
    return list;
}

// Until waits for a point of another stream.
struct Until : Op {
    std::shared_ptr<Stream> stream;
    uint32_t point;
    Until(std::shared_ptr<Stream> s, uint32_t p) : Op(Wait), stream(std::move(s)), point(p) {}
    void run(Device &) override { stream->wait(point); }
};
}  // namespace

uint32_t Stream::enqueue(std::shared_ptr<Op> op) {
    std::lock_guard lock(mu_);
    queue_.push_back(std::move(op));
    if (!started_) {
        started_ = true;
        spawn([self = shared_from_this()] { self->work(); });
    }
    more_.notify_one();
    return ++enqueued_;
}

uint32_t Stream::end() {
    std::lock_guard lock(mu_);
    return enqueued_;
}

void Stream::wait(uint32_t point) {
    waiters_++;
    for (uint32_t now; int32_t((now = done_.load()) - point) < 0;)
        park(done_, now);
    waiters_--;
}

bool Stream::await(uint32_t point, long ns) {
    const uint32_t now = done_.load();
    if (int32_t(now - point) >= 0)
        return true;
    waiters_++;
    park_for(done_, now, ns);
    waiters_--;
    return reached(point);
}

void Stream::close() {
    std::lock_guard lock(mu_);
    closed_ = true;
    more_.notify_one();
}

void Stream::work() {
    for (;;) {
        std::shared_ptr<Op> op;
        {
            std::unique_lock lock(mu_);
            more_.wait(lock, [&] { return !queue_.empty() || closed_; });
            if (queue_.empty())
                return;
            op = std::move(queue_.front());
            queue_.pop_front();
        }
        late();
        op->run(device);
        op.reset();
        done_++;
        if (waiters_.load() != 0)
            wake(done_);
    }
}

int32_t stream_of(Handle handle, std::shared_ptr<Stream> *out) {
    if (handle > 2) {
        *out = streams.get(handle);
        return *out ? OK : INVALID_HANDLE;
    }
    Device *d = current();
    if (d == nullptr)
        return INVALID_CONTEXT;
    std::lock_guard lock(mu);
    auto &own = handle == 2 ? running[d].of_thread[gettid()] : running[d].legacy;
    if (own == nullptr)
        own = make(*d, true);
    *out = own;
    return OK;
}

void enqueue_ordered(Stream &s, std::shared_ptr<Op> op) {
    if (s.blocking) {
        std::shared_ptr<Stream> legacy;
        {
            std::lock_guard lock(mu);
            legacy = running[&s.device].legacy;
        }
        if (legacy.get() == &s) {
            for (auto &other : streams_of(s.device))
                if (other->blocking && other.get() != &s)
                    s.enqueue(std::make_shared<Until>(other, other->end()));
        } else if (legacy != nullptr) {
            s.enqueue(std::make_shared<Until>(legacy, legacy->end()));
        }
    }
    s.enqueue(std::move(op));
}

void drain(Device &d) {
    for (auto &s : streams_of(d))
        s->wait(s->end());
}

API cuStreamCreateWithPriority(Handle *out, uint32_t flags, int32_t) {
    Device *d = current();
    if (d == nullptr)
        return INVALID_CONTEXT;
    if (flags > 1)
        return INVALID_VALUE;
    std::lock_guard lock(mu);
    *out = streams.add(make(*d, flags == 0));
    return OK;
}

API cuStreamDestroy_v2(Handle handle) {
    if (current() == nullptr)
        return INVALID_CONTEXT;
    auto s = streams.get(handle);
    if (s == nullptr)
        return INVALID_HANDLE;
    if (int32_t r = refuse_captured(*s))
        return r;
    streams.take(handle);
    s->close();
    return OK;
}

API cuStreamQuery(Handle handle) {
    std::shared_ptr<Stream> s;
    if (int32_t r = stream_of(handle, &s))
        return r;
    if (int32_t r = refuse_captured(*s))
        return r;
    return s->await(s->end(), query_ns) ? OK : NOT_READY;
}

API cuStreamSynchronize(Handle handle) {
    std::shared_ptr<Stream> s;
    if (int32_t r = stream_of(handle, &s))
        return r;
    if (int32_t r = refuse_captured(*s))
        return r;
    s->wait(s->end());
    return OK;
}

API cuStreamGetCtx(Handle handle, Handle *out) {
    std::shared_ptr<Stream> s;
    if (int32_t r = stream_of(handle, &s))
        return r;
    *out = s->device.context();
    return OK;
}
