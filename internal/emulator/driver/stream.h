// Streams: each is a queue that an OS thread of its own works off, so that kernels of several ranks can wait for each other.
#pragma once
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "abi.h"
#include "futex.h"

struct Device;
struct Capture;

// Op is a piece of work of a stream, or a node of a graph, which runs many times.
struct Op {
    enum Kind { Kernel, Copy, Fill, Value, Record, Wait, Graph };
    const Kind kind;
    explicit Op(Kind k) : kind(k) {}
    virtual ~Op() = default;
    virtual void run(Device &device) = 0;  // returns when it is done
};

class Stream : public std::enable_shared_from_this<Stream> {
  public:
    // blocking: in order with the legacy default stream.
    Stream(Device &d, bool blocking) : device(d), blocking(blocking) {}
    Device &device;
    const bool blocking;

    // Guarded by the mutex of capture.cpp.
    std::shared_ptr<Capture> capture;
    std::vector<uint32_t> tail;  // the nodes that the next one follows

    uint32_t enqueue(std::shared_ptr<Op> op);  // returns the point of its end
    uint32_t end();                            // the point of the end of all work enqueued so far
    bool reached(uint32_t point) const { return int32_t(done_.load(std::memory_order_acquire) - point) >= 0; }
    void wait(uint32_t point);
    bool await(uint32_t point, long ns);  // waits for so long at most, and reports whether the point is reached
    void close();  // its thread ends after the work

  private:
    void work();
    std::mutex mu_;
    std::condition_variable more_;
    std::deque<std::shared_ptr<Op>> queue_;
    uint32_t enqueued_ = 0;
    bool started_ = false, closed_ = false;
    Word done_{0}, waiters_{0};
};

// stream_of finds a stream by its handle, the default streams of the current context included.
int32_t stream_of(Handle handle, std::shared_ptr<Stream> *out);

// enqueue_ordered enqueues on a stream, after what the legacy default stream's rules put in front.
void enqueue_ordered(Stream &s, std::shared_ptr<Op> op);

// drain returns when all that was enqueued on streams of the device is done.
void drain(Device &d);
