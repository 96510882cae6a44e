//go:build linux && cgo

package cuda

/*
#include "driver.h"

#cgo noescape weft_cuInit
#cgo nocallback weft_cuInit
#cgo noescape weft_cuDriverGetVersion
#cgo nocallback weft_cuDriverGetVersion
#cgo noescape weft_cuDeviceGetCount
#cgo nocallback weft_cuDeviceGetCount
#cgo noescape weft_cuDeviceGet
#cgo nocallback weft_cuDeviceGet
#cgo noescape weft_cuDeviceGetName
#cgo nocallback weft_cuDeviceGetName
#cgo noescape weft_cuDeviceGetUuid
#cgo nocallback weft_cuDeviceGetUuid
#cgo noescape weft_cuDeviceTotalMem
#cgo nocallback weft_cuDeviceTotalMem
#cgo noescape weft_cuDeviceGetAttribute
#cgo nocallback weft_cuDeviceGetAttribute
#cgo noescape weft_cuDeviceGetPCIBusId
#cgo nocallback weft_cuDeviceGetPCIBusId
#cgo noescape weft_cuDeviceCanAccessPeer
#cgo nocallback weft_cuDeviceCanAccessPeer
#cgo noescape weft_cuDeviceGetP2PAttribute
#cgo nocallback weft_cuDeviceGetP2PAttribute
#cgo noescape weft_cuDevicePrimaryCtxRetain
#cgo nocallback weft_cuDevicePrimaryCtxRetain
#cgo noescape weft_cuDevicePrimaryCtxRelease
#cgo nocallback weft_cuDevicePrimaryCtxRelease
#cgo noescape weft_cuCtxEnablePeerAccess
#cgo nocallback weft_cuCtxEnablePeerAccess
#cgo noescape weft_cuCtxGetStreamPriorityRange
#cgo nocallback weft_cuCtxGetStreamPriorityRange
#cgo noescape weft_cuMemGetInfo
#cgo nocallback weft_cuMemGetInfo
#cgo noescape weft_cuMemAlloc
#cgo nocallback weft_cuMemAlloc
#cgo noescape weft_cuMemFree
#cgo nocallback weft_cuMemFree
#cgo noescape weft_cuMemHostAlloc
#cgo nocallback weft_cuMemHostAlloc
#cgo noescape weft_cuMemFreeHost
#cgo nocallback weft_cuMemFreeHost
#cgo noescape weft_cuMemHostRegister
#cgo nocallback weft_cuMemHostRegister
#cgo noescape weft_cuMemHostUnregister
#cgo nocallback weft_cuMemHostUnregister
#cgo noescape weft_cuMemcpyAsync
#cgo nocallback weft_cuMemcpyAsync
#cgo noescape weft_cuMemsetD8Async
#cgo nocallback weft_cuMemsetD8Async
#cgo noescape weft_cuMemsetD32Async
#cgo nocallback weft_cuMemsetD32Async
#cgo noescape weft_cuPointerGetAttribute
#cgo nocallback weft_cuPointerGetAttribute
#cgo noescape weft_cuMemAddressReserve
#cgo nocallback weft_cuMemAddressReserve
#cgo noescape weft_cuMemAddressFree
#cgo nocallback weft_cuMemAddressFree
#cgo noescape weft_cuMemRelease
#cgo nocallback weft_cuMemRelease
#cgo noescape weft_cuMemMap
#cgo nocallback weft_cuMemMap
#cgo noescape weft_cuMemUnmap
#cgo nocallback weft_cuMemUnmap
#cgo noescape weft_cuMemExportToShareableHandle
#cgo nocallback weft_cuMemExportToShareableHandle
#cgo noescape weft_cuMemImportFromShareableHandle
#cgo nocallback weft_cuMemImportFromShareableHandle
#cgo noescape weft_cuIpcGetMemHandle
#cgo nocallback weft_cuIpcGetMemHandle
#cgo noescape weft_cuIpcCloseMemHandle
#cgo nocallback weft_cuIpcCloseMemHandle
*/
import "C"

import "unsafe"

func cuInit(flags uint32) Code {
	return Code(C.weft_cuInit(0, C.uint32_t(flags)))
}

func cuDriverGetVersion(version *int32) Code {
	return Code(C.weft_cuDriverGetVersion(0, (*C.int32_t)(version)))
}

func cuDeviceGetCount(n *int32) Code {
	return Code(C.weft_cuDeviceGetCount(0, (*C.int32_t)(n)))
}

func cuDeviceGet(dev *int32, ordinal int32) Code {
	return Code(C.weft_cuDeviceGet(0, (*C.int32_t)(dev), C.int32_t(ordinal)))
}

func cuDeviceGetName(name unsafe.Pointer, size int32, dev int32) Code {
	return Code(C.weft_cuDeviceGetName(0, name, C.int32_t(size), C.int32_t(dev)))
}

func cuDeviceGetUuid(uuid unsafe.Pointer, dev int32) Code {
	return Code(C.weft_cuDeviceGetUuid(0, uuid, C.int32_t(dev)))
}

func cuDeviceTotalMem(bytes *uintptr, dev int32) Code {
	return Code(C.weft_cuDeviceTotalMem(0, (*C.size_t)(unsafe.Pointer(bytes)), C.int32_t(dev)))
}

func cuDeviceGetAttribute(value *int32, attr int32, dev int32) Code {
	return Code(C.weft_cuDeviceGetAttribute(0, (*C.int32_t)(value), C.int32_t(attr), C.int32_t(dev)))
}

func cuDeviceGetPCIBusId(id unsafe.Pointer, size int32, dev int32) Code {
	return Code(C.weft_cuDeviceGetPCIBusId(0, id, C.int32_t(size), C.int32_t(dev)))
}

func cuDeviceCanAccessPeer(can *int32, dev int32, peer int32) Code {
	return Code(C.weft_cuDeviceCanAccessPeer(0, (*C.int32_t)(can), C.int32_t(dev), C.int32_t(peer)))
}

func cuDeviceGetP2PAttribute(value *int32, attr int32, src int32, dst int32) Code {
	return Code(C.weft_cuDeviceGetP2PAttribute(0, (*C.int32_t)(value), C.int32_t(attr), C.int32_t(src), C.int32_t(dst)))
}

func cuDevicePrimaryCtxRetain(out *uintptr, dev int32) Code {
	return Code(C.weft_cuDevicePrimaryCtxRetain(0, (*C.uintptr_t)(unsafe.Pointer(out)), C.int32_t(dev)))
}

func cuDevicePrimaryCtxRelease(dev int32) Code {
	return Code(C.weft_cuDevicePrimaryCtxRelease(0, C.int32_t(dev)))
}

func cuCtxEnablePeerAccess(ctx uintptr, peer uintptr, flags uint32) Code {
	return Code(C.weft_cuCtxEnablePeerAccess(C.uintptr_t(ctx), C.uintptr_t(peer), C.uint32_t(flags)))
}

func cuCtxGetStreamPriorityRange(ctx uintptr, least *int32, greatest *int32) Code {
	return Code(C.weft_cuCtxGetStreamPriorityRange(C.uintptr_t(ctx), (*C.int32_t)(least), (*C.int32_t)(greatest)))
}

func cuMemGetInfo(ctx uintptr, free *uintptr, total *uintptr) Code {
	return Code(C.weft_cuMemGetInfo(C.uintptr_t(ctx), (*C.size_t)(unsafe.Pointer(free)), (*C.size_t)(unsafe.Pointer(total))))
}

func cuMemAlloc(ctx uintptr, out *uintptr, bytes uintptr) Code {
	return Code(C.weft_cuMemAlloc(C.uintptr_t(ctx), (*C.uintptr_t)(unsafe.Pointer(out)), C.size_t(bytes)))
}

func cuMemFree(ctx uintptr, addr uintptr) Code {
	return Code(C.weft_cuMemFree(C.uintptr_t(ctx), C.uintptr_t(addr)))
}

func cuMemHostAlloc(ctx uintptr, out *uintptr, bytes uintptr, flags uint32) Code {
	return Code(C.weft_cuMemHostAlloc(C.uintptr_t(ctx), (*C.uintptr_t)(unsafe.Pointer(out)), C.size_t(bytes), C.uint32_t(flags)))
}

func cuMemFreeHost(ctx uintptr, addr uintptr) Code {
	return Code(C.weft_cuMemFreeHost(C.uintptr_t(ctx), C.uintptr_t(addr)))
}

func cuMemHostRegister(ctx uintptr, addr uintptr, bytes uintptr, flags uint32) Code {
	return Code(C.weft_cuMemHostRegister(C.uintptr_t(ctx), C.uintptr_t(addr), C.size_t(bytes), C.uint32_t(flags)))
}

func cuMemHostUnregister(ctx uintptr, addr uintptr) Code {
	return Code(C.weft_cuMemHostUnregister(C.uintptr_t(ctx), C.uintptr_t(addr)))
}

func cuMemcpyAsync(ctx uintptr, dst uintptr, src uintptr, bytes uintptr, stream uintptr) Code {
	return Code(C.weft_cuMemcpyAsync(C.uintptr_t(ctx), C.uintptr_t(dst), C.uintptr_t(src), C.size_t(bytes), C.uintptr_t(stream)))
}

func cuMemsetD8Async(ctx uintptr, dst uintptr, value uint8, n uintptr, stream uintptr) Code {
	return Code(C.weft_cuMemsetD8Async(C.uintptr_t(ctx), C.uintptr_t(dst), C.uint8_t(value), C.size_t(n), C.uintptr_t(stream)))
}

func cuMemsetD32Async(ctx uintptr, dst uintptr, value uint32, n uintptr, stream uintptr) Code {
	return Code(C.weft_cuMemsetD32Async(C.uintptr_t(ctx), C.uintptr_t(dst), C.uint32_t(value), C.size_t(n), C.uintptr_t(stream)))
}

func cuPointerGetAttribute(ctx uintptr, data unsafe.Pointer, attr int32, addr uintptr) Code {
	return Code(C.weft_cuPointerGetAttribute(C.uintptr_t(ctx), data, C.int32_t(attr), C.uintptr_t(addr)))
}

func cuMemAddressReserve(ctx uintptr, out *uintptr, bytes uintptr, align uintptr, addr uintptr, flags uint64) Code {
	return Code(C.weft_cuMemAddressReserve(C.uintptr_t(ctx), (*C.uintptr_t)(unsafe.Pointer(out)), C.size_t(bytes), C.size_t(align), C.uintptr_t(addr), C.uint64_t(flags)))
}

func cuMemAddressFree(ctx uintptr, addr uintptr, bytes uintptr) Code {
	return Code(C.weft_cuMemAddressFree(C.uintptr_t(ctx), C.uintptr_t(addr), C.size_t(bytes)))
}

func cuMemRelease(ctx uintptr, handle uintptr) Code {
	return Code(C.weft_cuMemRelease(C.uintptr_t(ctx), C.uintptr_t(handle)))
}

func cuMemMap(ctx uintptr, addr uintptr, bytes uintptr, offset uintptr, handle uintptr, flags uint64) Code {
	return Code(C.weft_cuMemMap(C.uintptr_t(ctx), C.uintptr_t(addr), C.size_t(bytes), C.size_t(offset), C.uintptr_t(handle), C.uint64_t(flags)))
}

func cuMemUnmap(ctx uintptr, addr uintptr, bytes uintptr) Code {
	return Code(C.weft_cuMemUnmap(C.uintptr_t(ctx), C.uintptr_t(addr), C.size_t(bytes)))
}

func cuMemExportToShareableHandle(ctx uintptr, out unsafe.Pointer, handle uintptr, kind int32, flags uint64) Code {
	return Code(C.weft_cuMemExportToShareableHandle(C.uintptr_t(ctx), out, C.uintptr_t(handle), C.int32_t(kind), C.uint64_t(flags)))
}

func cuMemImportFromShareableHandle(ctx uintptr, out *uintptr, fd uintptr, kind int32) Code {
	return Code(C.weft_cuMemImportFromShareableHandle(C.uintptr_t(ctx), (*C.uintptr_t)(unsafe.Pointer(out)), C.uintptr_t(fd), C.int32_t(kind)))
}

func cuIpcGetMemHandle(ctx uintptr, handle unsafe.Pointer, addr uintptr) Code {
	return Code(C.weft_cuIpcGetMemHandle(C.uintptr_t(ctx), handle, C.uintptr_t(addr)))
}

func cuIpcCloseMemHandle(ctx uintptr, addr uintptr) Code {
	return Code(C.weft_cuIpcCloseMemHandle(C.uintptr_t(ctx), C.uintptr_t(addr)))
}
