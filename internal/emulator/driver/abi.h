// Types of libcuda's ABI that the stand-in uses. Handles are integers of a pointer's size.
#pragma once
#include <cstddef>
#include <cstdint>

// API begins an exported function; everything else is hidden.
#define API extern "C" __attribute__((visibility("default"))) int32_t

using Handle = uintptr_t;

enum Result : int32_t {
    OK = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    NOT_INITIALIZED = 3,
    NO_DEVICE = 100,
    INVALID_DEVICE = 101,
    INVALID_IMAGE = 200,
    INVALID_CONTEXT = 201,
    NO_BINARY_FOR_GPU = 209,
    PEER_ACCESS_UNSUPPORTED = 217,
    INVALID_HANDLE = 400,
    NOT_FOUND = 500,
    NOT_READY = 600,
    LAUNCH_OUT_OF_RESOURCES = 701,
    PEER_ACCESS_ALREADY_ENABLED = 704,
    HOST_MEMORY_ALREADY_REGISTERED = 712,
    HOST_MEMORY_NOT_REGISTERED = 713,
    COOPERATIVE_LAUNCH_TOO_LARGE = 720,
    NOT_SUPPORTED = 801,
    CAPTURE_UNSUPPORTED = 900,
    CAPTURE_INVALIDATED = 901,
    CAPTURE_MERGE = 902,
    CAPTURE_UNMATCHED = 903,
    CAPTURE_UNJOINED = 904,
    CAPTURE_ISOLATION = 905,
    CAPTURE_IMPLICIT = 906,
    CAPTURED_EVENT = 907,
    CAPTURE_WRONG_THREAD = 908,
    GRAPH_UPDATE_FAILURE = 910,
    INVALID_CLUSTER_SIZE = 912,
};

struct Location { int32_t type, id; };
struct AllocationProp {
    int32_t type, handles;
    Location location;
    void *reserved;
    uint8_t flags[8];
};
struct AccessDesc { Location location; int32_t flags; };
struct IpcHandle { char bytes[64]; };
struct UpdateInfo { int32_t result; Handle node, from; };
struct LaunchAttribute {
    int32_t id;
    char pad[4];
    union { char bytes[64]; int32_t number; struct { uint32_t x, y, z; } dim; } value;
};
struct LaunchConfig {
    uint32_t grid[3], block[3], shared;
    Handle stream;
    LaunchAttribute *attributes;
    uint32_t num;
};
struct Copy2D {
    size_t src_x, src_y;
    uint32_t src_type;
    const void *src_host;
    uint64_t src;
    Handle src_array;
    size_t src_pitch, dst_x, dst_y;
    uint32_t dst_type;
    void *dst_host;
    uint64_t dst;
    Handle dst_array;
    size_t dst_pitch, width, height;
};
static_assert(sizeof(AllocationProp) == 32 && sizeof(AccessDesc) == 12 && sizeof(UpdateInfo) == 24, "layout");
static_assert(sizeof(LaunchAttribute) == 72 && sizeof(LaunchConfig) == 56 && sizeof(Copy2D) == 128, "layout");
