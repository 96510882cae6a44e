// The functions of libcuda that weft calls, one row each: name, exported symbol, parameters, arguments, whether the
// binding works without it, and the first driver version that has it. Handles are integers of a pointer's size, which the
// calling convention treats alike. A row of WEFT_CALLS makes a pointer, a line of the table that is resolved at load time,
// and a shim weft_NAME(ctx, ...) that makes ctx current and calls. A row of WEFT_OWN makes the first two; its shim is
// written by hand in driver.c.
#ifndef WEFT_DRIVER_H
#define WEFT_DRIVER_H

#include <stddef.h>
#include <stdint.h>

// Layouts of libcuda's structs, as its ABI has them on 64-bit Linux.
typedef struct { int32_t type, id; } weft_location;                     // type 1: device
typedef struct {
    int32_t type, handles;                                              // type 1: pinned; handles 1: file descriptor
    weft_location location;
    void *reserved;
    uint8_t flags[8];
} weft_prop;
typedef struct { weft_location location; int32_t flags; } weft_access;  // flags 3: read and write
typedef struct { char bytes[64]; } weft_ipc;
typedef struct { int32_t result; uintptr_t node, from; } weft_update;
typedef struct {
    int32_t id;
    char pad[4];
    union { char bytes[64]; int32_t number; struct { uint32_t x, y, z; } dim; } value;
} weft_attribute;
typedef struct {
    uint32_t gx, gy, gz, bx, by, bz, shared;
    uintptr_t stream;
    weft_attribute *attributes;
    uint32_t num;
} weft_config;
_Static_assert(sizeof(weft_prop) == 32 && sizeof(weft_access) == 12 && sizeof(weft_update) == 24, "layout");
_Static_assert(sizeof(weft_attribute) == 72 && sizeof(weft_config) == 56, "layout");

#define WEFT_CALLS(X) \
    X(cuInit, cuInit, (uint32_t flags), (flags), REQUIRED, "") \
    X(cuDriverGetVersion, cuDriverGetVersion, (int32_t *version), (version), REQUIRED, "") \
    X(cuDeviceGetCount, cuDeviceGetCount, (int32_t *n), (n), REQUIRED, "") \
    X(cuDeviceGet, cuDeviceGet, (int32_t *dev, int32_t ordinal), (dev, ordinal), REQUIRED, "") \
    X(cuDeviceGetName, cuDeviceGetName, (void *name, int32_t size, int32_t dev), (name, size, dev), REQUIRED, "") \
    X(cuDeviceGetUuid, cuDeviceGetUuid_v2, (void *uuid, int32_t dev), (uuid, dev), REQUIRED, "11.4") \
    X(cuDeviceTotalMem, cuDeviceTotalMem_v2, (size_t *bytes, int32_t dev), (bytes, dev), REQUIRED, "") \
    X(cuDeviceGetAttribute, cuDeviceGetAttribute, (int32_t *value, int32_t attr, int32_t dev), (value, attr, dev), REQUIRED, "") \
    X(cuDeviceGetPCIBusId, cuDeviceGetPCIBusId, (void *id, int32_t size, int32_t dev), (id, size, dev), REQUIRED, "") \
    X(cuDeviceCanAccessPeer, cuDeviceCanAccessPeer, (int32_t *can, int32_t dev, int32_t peer), (can, dev, peer), REQUIRED, "") \
    X(cuDeviceGetP2PAttribute, cuDeviceGetP2PAttribute, (int32_t *value, int32_t attr, int32_t src, int32_t dst), (value, attr, src, dst), REQUIRED, "") \
    X(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, (uintptr_t *out, int32_t dev), (out, dev), REQUIRED, "") \
    X(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2, (int32_t dev), (dev), REQUIRED, "") \
    X(cuCtxEnablePeerAccess, cuCtxEnablePeerAccess, (uintptr_t peer, uint32_t flags), (peer, flags), REQUIRED, "") \
    X(cuCtxGetStreamPriorityRange, cuCtxGetStreamPriorityRange, (int32_t *least, int32_t *greatest), (least, greatest), REQUIRED, "") \
    X(cuMemGetInfo, cuMemGetInfo_v2, (size_t *free, size_t *total), (free, total), REQUIRED, "") \
    X(cuMemAlloc, cuMemAlloc_v2, (uintptr_t *out, size_t bytes), (out, bytes), REQUIRED, "") \
    X(cuMemFree, cuMemFree_v2, (uintptr_t addr), (addr), REQUIRED, "") \
    X(cuMemHostAlloc, cuMemHostAlloc, (uintptr_t *out, size_t bytes, uint32_t flags), (out, bytes, flags), REQUIRED, "") \
    X(cuMemFreeHost, cuMemFreeHost, (uintptr_t addr), (addr), REQUIRED, "") \
    X(cuMemHostRegister, cuMemHostRegister_v2, (uintptr_t addr, size_t bytes, uint32_t flags), (addr, bytes, flags), REQUIRED, "") \
    X(cuMemHostUnregister, cuMemHostUnregister, (uintptr_t addr), (addr), REQUIRED, "") \
    X(cuMemcpyAsync, cuMemcpyAsync, (uintptr_t dst, uintptr_t src, size_t bytes, uintptr_t stream), (dst, src, bytes, stream), REQUIRED, "") \
    X(cuMemsetD8Async, cuMemsetD8Async, (uintptr_t dst, uint8_t value, size_t n, uintptr_t stream), (dst, value, n, stream), REQUIRED, "") \
    X(cuMemsetD32Async, cuMemsetD32Async, (uintptr_t dst, uint32_t value, size_t n, uintptr_t stream), (dst, value, n, stream), REQUIRED, "") \
    X(cuPointerGetAttribute, cuPointerGetAttribute, (void *data, int32_t attr, uintptr_t addr), (data, attr, addr), REQUIRED, "") \
    X(cuMemAddressReserve, cuMemAddressReserve, (uintptr_t *out, size_t bytes, size_t align, uintptr_t addr, uint64_t flags), (out, bytes, align, addr, flags), REQUIRED, "") \
    X(cuMemAddressFree, cuMemAddressFree, (uintptr_t addr, size_t bytes), (addr, bytes), REQUIRED, "") \
    X(cuMemRelease, cuMemRelease, (uintptr_t handle), (handle), REQUIRED, "") \
    X(cuMemMap, cuMemMap, (uintptr_t addr, size_t bytes, size_t offset, uintptr_t handle, uint64_t flags), (addr, bytes, offset, handle, flags), REQUIRED, "") \
    X(cuMemUnmap, cuMemUnmap, (uintptr_t addr, size_t bytes), (addr, bytes), REQUIRED, "") \
    X(cuMemExportToShareableHandle, cuMemExportToShareableHandle, (void *out, uintptr_t handle, int32_t kind, uint64_t flags), (out, handle, kind, flags), REQUIRED, "") \
    X(cuMemImportFromShareableHandle, cuMemImportFromShareableHandle, (uintptr_t *out, uintptr_t fd, int32_t kind), (out, fd, kind), REQUIRED, "") \
    X(cuIpcGetMemHandle, cuIpcGetMemHandle, (void *handle, uintptr_t addr), (handle, addr), REQUIRED, "") \
    X(cuIpcCloseMemHandle, cuIpcCloseMemHandle, (uintptr_t addr), (addr), REQUIRED, "") \
    X(cuStreamCreateWithPriority, cuStreamCreateWithPriority, (uintptr_t *out, uint32_t flags, int32_t priority), (out, flags, priority), REQUIRED, "") \
    X(cuStreamDestroy, cuStreamDestroy_v2, (uintptr_t stream), (stream), REQUIRED, "") \
    X(cuStreamQuery, cuStreamQuery, (uintptr_t stream), (stream), REQUIRED, "") \
    X(cuStreamSynchronize, cuStreamSynchronize, (uintptr_t stream), (stream), REQUIRED, "") \
    X(cuStreamWaitEvent, cuStreamWaitEvent, (uintptr_t stream, uintptr_t event, uint32_t flags), (stream, event, flags), REQUIRED, "") \
    X(cuStreamGetCtx, cuStreamGetCtx, (uintptr_t stream, uintptr_t *out), (stream, out), REQUIRED, "") \
    X(cuStreamIsCapturing, cuStreamIsCapturing, (uintptr_t stream, int32_t *status), (stream, status), REQUIRED, "") \
    X(cuStreamBeginCapture, cuStreamBeginCapture_v2, (uintptr_t stream, int32_t mode), (stream, mode), REQUIRED, "") \
    X(cuStreamEndCapture, cuStreamEndCapture, (uintptr_t stream, uintptr_t *graph), (stream, graph), REQUIRED, "") \
    X(cuStreamWriteValue32, cuStreamWriteValue32_v2, (uintptr_t stream, uintptr_t addr, uint32_t value, uint32_t flags), (stream, addr, value, flags), OPTIONAL, "11.7") \
    X(cuStreamWaitValue32, cuStreamWaitValue32_v2, (uintptr_t stream, uintptr_t addr, uint32_t value, uint32_t flags), (stream, addr, value, flags), OPTIONAL, "11.7") \
    X(cuEventCreate, cuEventCreate, (uintptr_t *out, uint32_t flags), (out, flags), REQUIRED, "") \
    X(cuEventDestroy, cuEventDestroy_v2, (uintptr_t event), (event), REQUIRED, "") \
    X(cuEventRecord, cuEventRecord, (uintptr_t event, uintptr_t stream), (event, stream), REQUIRED, "") \
    X(cuEventQuery, cuEventQuery, (uintptr_t event), (event), REQUIRED, "") \
    X(cuEventSynchronize, cuEventSynchronize, (uintptr_t event), (event), REQUIRED, "") \
    X(cuEventElapsedTime, cuEventElapsedTime, (float *ms, uintptr_t start, uintptr_t end), (ms, start, end), REQUIRED, "") \
    X(cuGraphDestroy, cuGraphDestroy, (uintptr_t graph), (graph), REQUIRED, "") \
    X(cuGraphGetNodes, cuGraphGetNodes, (uintptr_t graph, void *nodes, size_t *n), (graph, nodes, n), REQUIRED, "") \
    X(cuGraphInstantiateWithFlags, cuGraphInstantiateWithFlags, (uintptr_t *exec, uintptr_t graph, uint64_t flags), (exec, graph, flags), REQUIRED, "11.4") \
    X(cuGraphExecDestroy, cuGraphExecDestroy, (uintptr_t exec), (exec), REQUIRED, "") \
    X(cuGraphUpload, cuGraphUpload, (uintptr_t exec, uintptr_t stream), (exec, stream), REQUIRED, "11.1") \
    X(cuGraphLaunch, cuGraphLaunch, (uintptr_t exec, uintptr_t stream), (exec, stream), REQUIRED, "") \
    X(cuModuleLoadData, cuModuleLoadData, (uintptr_t *out, void *image), (out, image), REQUIRED, "") \
    X(cuModuleUnload, cuModuleUnload, (uintptr_t module), (module), REQUIRED, "") \
    X(cuModuleGetFunction, cuModuleGetFunction, (uintptr_t *out, uintptr_t module, void *name), (out, module, name), REQUIRED, "") \
    X(cuModuleGetGlobal, cuModuleGetGlobal_v2, (uintptr_t *addr, size_t *bytes, uintptr_t module, void *name), (addr, bytes, module, name), REQUIRED, "") \
    X(cuFuncGetAttribute, cuFuncGetAttribute, (int32_t *value, int32_t attr, uintptr_t f), (value, attr, f), REQUIRED, "") \
    X(cuFuncSetAttribute, cuFuncSetAttribute, (uintptr_t f, int32_t attr, int32_t value), (f, attr, value), REQUIRED, "") \
    X(cuFuncGetParamInfo, cuFuncGetParamInfo, (uintptr_t f, size_t index, size_t *offset, size_t *bytes), (f, index, offset, bytes), OPTIONAL, "12.4") \
    X(cuOccupancyMaxActiveBlocksPerMultiprocessor, cuOccupancyMaxActiveBlocksPerMultiprocessor, (int32_t *n, uintptr_t f, int32_t threads, size_t shared), (n, f, threads, shared), REQUIRED, "")

#define WEFT_OWN(X) \
    X(cuGetErrorName, cuGetErrorName, (int32_t code, const char **out), (), REQUIRED, "") \
    X(cuGetErrorString, cuGetErrorString, (int32_t code, const char **out), (), REQUIRED, "") \
    X(cuCtxGetCurrent, cuCtxGetCurrent, (uintptr_t *out), (), REQUIRED, "") \
    X(cuCtxSetCurrent, cuCtxSetCurrent, (uintptr_t ctx), (), REQUIRED, "") \
    X(cuMemCreate, cuMemCreate, (uintptr_t *out, size_t bytes, const weft_prop *prop, uint64_t flags), (), REQUIRED, "") \
    X(cuMemGetAllocationGranularity, cuMemGetAllocationGranularity, (size_t *out, const weft_prop *prop, int32_t option), (), REQUIRED, "") \
    X(cuMemSetAccess, cuMemSetAccess, (uintptr_t addr, size_t bytes, const weft_access *access, size_t n), (), REQUIRED, "") \
    X(cuIpcOpenMemHandle, cuIpcOpenMemHandle_v2, (uintptr_t *out, weft_ipc handle, uint32_t flags), (), REQUIRED, "") \
    X(cuGraphExecUpdate, cuGraphExecUpdate_v2, (uintptr_t exec, uintptr_t graph, weft_update *info), (), REQUIRED, "12.0") \
    X(cuLaunchKernelEx, cuLaunchKernelEx, (const weft_config *config, uintptr_t f, void **params, void **extra), (), REQUIRED, "11.8") \
    X(cuOccupancyMaxActiveClusters, cuOccupancyMaxActiveClusters, (int32_t *n, uintptr_t f, const weft_config *config), (), OPTIONAL, "11.8")

#define WEFT_STRIP(...) __VA_ARGS__
#define WEFT_DECLARE(name, symbol, params, args, need, since) int32_t weft_##name(uintptr_t ctx, WEFT_STRIP params);
WEFT_CALLS(WEFT_DECLARE)

// weft_missing is what a shim returns when the library has no such symbol.
enum { weft_missing = -2 };

int32_t weft_num_symbols(void);
const char *weft_symbol(int32_t i, int32_t *optional, const char **since);
void weft_bind(int32_t i, uintptr_t address);

int32_t weft_error_text(int32_t code, char *name, size_t name_size, char *text, size_t text_size);
int32_t weft_mem_create(uintptr_t ctx, uintptr_t *out, size_t bytes, int32_t device, int32_t handles);
int32_t weft_granularity(size_t *out, int32_t device, int32_t handles);
int32_t weft_set_access(uintptr_t ctx, uintptr_t addr, size_t bytes, const int32_t *devices, size_t n);
int32_t weft_ipc_open(uintptr_t ctx, uintptr_t *out, const void *handle);
int32_t weft_copy_host(uintptr_t ctx, uintptr_t dst, uintptr_t src, void *host, size_t bytes, uintptr_t stream);
int32_t weft_exec_update(uintptr_t ctx, uintptr_t exec, uintptr_t graph, int32_t *result);

// weft_shape is the shape of a launch; an attribute that is 0 is left out.
typedef struct {
    uint32_t grid[3], block[3], shared, cluster, cooperative, remote, overlap;
} weft_shape;
int32_t weft_launch(uintptr_t ctx, uintptr_t stream, uintptr_t f, const void *shape, void *params, size_t bytes);
int32_t weft_max_clusters(uintptr_t ctx, uintptr_t f, const void *shape, int32_t *n);

#endif
