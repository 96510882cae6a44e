// The functions of libcuda's stand-in that driver.cpp calls, and what it needs for checks.
#pragma once
#include <cstdio>
#include <cstdlib>

#include "../driver/abi.h"

#define CHECK(want, ...)                                                                            \
    do {                                                                                            \
        const long long got_ = (long long)(__VA_ARGS__), want_ = (long long)(want);                 \
        if (got_ != want_) {                                                                        \
            printf("line %d: %s is %lld, not %lld\n", __LINE__, #__VA_ARGS__, got_, want_);         \
            exit(1);                                                                                \
        }                                                                                           \
    } while (0)

using Address = uintptr_t;

extern "C" {
int32_t cuInit(uint32_t);
int32_t cuDeviceGetCount(int32_t *);
int32_t cuDevicePrimaryCtxRetain(Handle *, int32_t);
int32_t cuCtxSetCurrent(Handle);
int32_t cuCtxEnablePeerAccess(Handle, uint32_t);
int32_t cuMemAlloc_v2(Address *, size_t);
int32_t cuMemFree_v2(Address);
int32_t cuMemGetInfo_v2(size_t *, size_t *);
int32_t cuPointerGetAttribute(void *, int32_t, Address);
int32_t cuMemcpyAsync(Address, Address, size_t, Handle);
int32_t cuMemsetD32Async(Address, uint32_t, size_t, Handle);
int32_t cuMemCreate(Handle *, size_t, const AllocationProp *, uint64_t);
int32_t cuMemRelease(Handle);
int32_t cuMemAddressReserve(Address *, size_t, size_t, Address, uint64_t);
int32_t cuMemAddressFree(Address, size_t);
int32_t cuMemMap(Address, size_t, size_t, Handle, uint64_t);
int32_t cuMemUnmap(Address, size_t);
int32_t cuMemSetAccess(Address, size_t, const AccessDesc *, size_t);
int32_t cuMemExportToShareableHandle(void *, Handle, int32_t, uint64_t);
int32_t cuMemImportFromShareableHandle(Handle *, uintptr_t, int32_t);
int32_t cuIpcGetMemHandle(IpcHandle *, Address);
int32_t cuIpcOpenMemHandle_v2(Address *, IpcHandle, uint32_t);
int32_t cuStreamCreateWithPriority(Handle *, uint32_t, int32_t);
int32_t cuStreamDestroy_v2(Handle);
int32_t cuStreamQuery(Handle);
int32_t cuStreamSynchronize(Handle);
int32_t cuStreamWaitEvent(Handle, Handle, uint32_t);
int32_t cuStreamIsCapturing(Handle, int32_t *);
int32_t cuStreamBeginCapture_v2(Handle, int32_t);
int32_t cuStreamEndCapture(Handle, Handle *);
int32_t cuStreamWaitValue32_v2(Handle, Address, uint32_t, uint32_t);
int32_t cuEventCreate(Handle *, uint32_t);
int32_t cuEventDestroy_v2(Handle);
int32_t cuEventRecord(Handle, Handle);
int32_t cuEventQuery(Handle);
int32_t cuGraphGetNodes(Handle, Handle *, size_t *);
int32_t cuGraphDestroy(Handle);
int32_t cuGraphInstantiateWithFlags(Handle *, Handle, uint64_t);
int32_t cuGraphExecDestroy(Handle);
int32_t cuGraphExecUpdate_v2(Handle, Handle, UpdateInfo *);
int32_t cuGraphLaunch(Handle, Handle);
int32_t cuModuleLoadData(Handle *, const char *);
int32_t cuModuleUnload(Handle);
int32_t cuModuleGetFunction(Handle *, Handle, const char *);
int32_t cuModuleGetGlobal_v2(Address *, size_t *, Handle, const char *);
int32_t cuFuncSetAttribute(Handle, int32_t, int32_t);
int32_t cuLaunchKernelEx(const LaunchConfig *, Handle, void **, void **);
}
