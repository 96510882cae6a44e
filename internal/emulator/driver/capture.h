// Stream capture: what streams would run becomes the nodes of a graph.
#pragma once
#include <memory>
#include <sys/types.h>
#include <vector>

#include "stream.h"

struct Node {
    std::shared_ptr<Op> op;
    std::vector<uint32_t> after;  // earlier nodes
};
using Nodes = std::vector<Node>;

struct Capture {
    Stream *origin = nullptr;
    Device *device = nullptr;
    int mode = 0;  // 0 global, 1 thread-local, 2 relaxed
    pid_t thread = 0;
    bool invalid = false, ended = false;
    Nodes nodes;
    std::vector<std::shared_ptr<Stream>> streams;  // those in it
};

// Point is a place in a capture that an event recorded.
struct Point {
    std::weak_ptr<Capture> capture;
    std::vector<uint32_t> tail;
    bool set = false;
};

// submit enqueues op on a stream, or adds it to the graph that the stream captures. Op and stream must be of one device.
int32_t submit(Handle stream, Device *device, std::shared_ptr<Op> op);

// is_capturing reports whether a stream captures; false for a wrong handle.
bool is_capturing(Handle stream);

// refuse_captured returns the error of a call that a capturing stream does not allow, and invalidates the capture.
int32_t refuse_captured(Stream &s);

// refuse_while_capturing is for calls that are not safe while this thread captures, or any thread in global mode.
int32_t refuse_while_capturing();

// capture_record puts the stream's place into point when it captures; false when it does not.
bool capture_record(Stream &s, Point *point);

// capture_wait makes a stream's capture follow a point, and takes the stream into the capture. done is false when neither the
// stream nor the point is of a capture. plain: the event was recorded outside of captures.
int32_t capture_wait(const std::shared_ptr<Stream> &s, const Point &point, bool plain, bool *done);
