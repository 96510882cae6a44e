//go:build linux && cgo

package cuda

/*
#include "driver.h"

#cgo noescape weft_cuStreamCreateWithPriority
#cgo nocallback weft_cuStreamCreateWithPriority
#cgo noescape weft_cuStreamDestroy
#cgo nocallback weft_cuStreamDestroy
#cgo noescape weft_cuStreamQuery
#cgo nocallback weft_cuStreamQuery
#cgo noescape weft_cuStreamSynchronize
#cgo nocallback weft_cuStreamSynchronize
#cgo noescape weft_cuStreamWaitEvent
#cgo nocallback weft_cuStreamWaitEvent
#cgo noescape weft_cuStreamGetCtx
#cgo nocallback weft_cuStreamGetCtx
#cgo noescape weft_cuStreamIsCapturing
#cgo nocallback weft_cuStreamIsCapturing
#cgo noescape weft_cuStreamBeginCapture
#cgo nocallback weft_cuStreamBeginCapture
#cgo noescape weft_cuStreamEndCapture
#cgo nocallback weft_cuStreamEndCapture
#cgo noescape weft_cuStreamWriteValue32
#cgo nocallback weft_cuStreamWriteValue32
#cgo noescape weft_cuStreamWaitValue32
#cgo nocallback weft_cuStreamWaitValue32
#cgo noescape weft_cuEventCreate
#cgo nocallback weft_cuEventCreate
#cgo noescape weft_cuEventDestroy
#cgo nocallback weft_cuEventDestroy
#cgo noescape weft_cuEventRecord
#cgo nocallback weft_cuEventRecord
#cgo noescape weft_cuEventQuery
#cgo nocallback weft_cuEventQuery
#cgo noescape weft_cuEventSynchronize
#cgo nocallback weft_cuEventSynchronize
#cgo noescape weft_cuEventElapsedTime
#cgo nocallback weft_cuEventElapsedTime
#cgo noescape weft_cuGraphDestroy
#cgo nocallback weft_cuGraphDestroy
#cgo noescape weft_cuGraphGetNodes
#cgo nocallback weft_cuGraphGetNodes
#cgo noescape weft_cuGraphInstantiateWithFlags
#cgo nocallback weft_cuGraphInstantiateWithFlags
#cgo noescape weft_cuGraphExecDestroy
#cgo nocallback weft_cuGraphExecDestroy
#cgo noescape weft_cuGraphUpload
#cgo nocallback weft_cuGraphUpload
#cgo noescape weft_cuGraphLaunch
#cgo nocallback weft_cuGraphLaunch
#cgo noescape weft_cuModuleLoadData
#cgo nocallback weft_cuModuleLoadData
#cgo noescape weft_cuModuleUnload
#cgo nocallback weft_cuModuleUnload
#cgo noescape weft_cuModuleGetFunction
#cgo nocallback weft_cuModuleGetFunction
#cgo noescape weft_cuModuleGetGlobal
#cgo nocallback weft_cuModuleGetGlobal
#cgo noescape weft_cuFuncGetAttribute
#cgo nocallback weft_cuFuncGetAttribute
#cgo noescape weft_cuFuncSetAttribute
#cgo nocallback weft_cuFuncSetAttribute
#cgo noescape weft_cuFuncGetParamInfo
#cgo nocallback weft_cuFuncGetParamInfo
#cgo noescape weft_cuOccupancyMaxActiveBlocksPerMultiprocessor
#cgo nocallback weft_cuOccupancyMaxActiveBlocksPerMultiprocessor
*/
import "C"

import "unsafe"

func cuStreamCreateWithPriority(ctx uintptr, out *uintptr, flags uint32, priority int32) Code {
	return Code(C.weft_cuStreamCreateWithPriority(C.uintptr_t(ctx), (*C.uintptr_t)(unsafe.Pointer(out)), C.uint32_t(flags), C.int32_t(priority)))
}

func cuStreamDestroy(ctx uintptr, stream uintptr) Code {
	return Code(C.weft_cuStreamDestroy(C.uintptr_t(ctx), C.uintptr_t(stream)))
}

func cuStreamQuery(ctx uintptr, stream uintptr) Code {
	return Code(C.weft_cuStreamQuery(C.uintptr_t(ctx), C.uintptr_t(stream)))
}

func cuStreamSynchronize(ctx uintptr, stream uintptr) Code {
	return Code(C.weft_cuStreamSynchronize(C.uintptr_t(ctx), C.uintptr_t(stream)))
}

func cuStreamWaitEvent(ctx uintptr, stream uintptr, event uintptr, flags uint32) Code {
	return Code(C.weft_cuStreamWaitEvent(C.uintptr_t(ctx), C.uintptr_t(stream), C.uintptr_t(event), C.uint32_t(flags)))
}

func cuStreamGetCtx(ctx uintptr, stream uintptr, out *uintptr) Code {
	return Code(C.weft_cuStreamGetCtx(C.uintptr_t(ctx), C.uintptr_t(stream), (*C.uintptr_t)(unsafe.Pointer(out))))
}

func cuStreamIsCapturing(ctx uintptr, stream uintptr, status *int32) Code {
	return Code(C.weft_cuStreamIsCapturing(C.uintptr_t(ctx), C.uintptr_t(stream), (*C.int32_t)(status)))
}

func cuStreamBeginCapture(ctx uintptr, stream uintptr, mode int32) Code {
	return Code(C.weft_cuStreamBeginCapture(C.uintptr_t(ctx), C.uintptr_t(stream), C.int32_t(mode)))
}

func cuStreamEndCapture(ctx uintptr, stream uintptr, graph *uintptr) Code {
	return Code(C.weft_cuStreamEndCapture(C.uintptr_t(ctx), C.uintptr_t(stream), (*C.uintptr_t)(unsafe.Pointer(graph))))
}

func cuStreamWriteValue32(ctx uintptr, stream uintptr, addr uintptr, value uint32, flags uint32) Code {
	return Code(C.weft_cuStreamWriteValue32(C.uintptr_t(ctx), C.uintptr_t(stream), C.uintptr_t(addr), C.uint32_t(value), C.uint32_t(flags)))
}

func cuStreamWaitValue32(ctx uintptr, stream uintptr, addr uintptr, value uint32, flags uint32) Code {
	return Code(C.weft_cuStreamWaitValue32(C.uintptr_t(ctx), C.uintptr_t(stream), C.uintptr_t(addr), C.uint32_t(value), C.uint32_t(flags)))
}

func cuEventCreate(ctx uintptr, out *uintptr, flags uint32) Code {
	return Code(C.weft_cuEventCreate(C.uintptr_t(ctx), (*C.uintptr_t)(unsafe.Pointer(out)), C.uint32_t(flags)))
}

func cuEventDestroy(ctx uintptr, event uintptr) Code {
	return Code(C.weft_cuEventDestroy(C.uintptr_t(ctx), C.uintptr_t(event)))
}

func cuEventRecord(ctx uintptr, event uintptr, stream uintptr) Code {
	return Code(C.weft_cuEventRecord(C.uintptr_t(ctx), C.uintptr_t(event), C.uintptr_t(stream)))
}

func cuEventQuery(ctx uintptr, event uintptr) Code {
	return Code(C.weft_cuEventQuery(C.uintptr_t(ctx), C.uintptr_t(event)))
}

func cuEventSynchronize(ctx uintptr, event uintptr) Code {
	return Code(C.weft_cuEventSynchronize(C.uintptr_t(ctx), C.uintptr_t(event)))
}

func cuEventElapsedTime(ctx uintptr, ms *float32, start uintptr, end uintptr) Code {
	return Code(C.weft_cuEventElapsedTime(C.uintptr_t(ctx), (*C.float)(unsafe.Pointer(ms)), C.uintptr_t(start), C.uintptr_t(end)))
}

func cuGraphDestroy(ctx uintptr, graph uintptr) Code {
	return Code(C.weft_cuGraphDestroy(C.uintptr_t(ctx), C.uintptr_t(graph)))
}

func cuGraphGetNodes(ctx uintptr, graph uintptr, nodes unsafe.Pointer, n *uintptr) Code {
	return Code(C.weft_cuGraphGetNodes(C.uintptr_t(ctx), C.uintptr_t(graph), nodes, (*C.size_t)(unsafe.Pointer(n))))
}

func cuGraphInstantiateWithFlags(ctx uintptr, exec *uintptr, graph uintptr, flags uint64) Code {
	return Code(C.weft_cuGraphInstantiateWithFlags(C.uintptr_t(ctx), (*C.uintptr_t)(unsafe.Pointer(exec)), C.uintptr_t(graph), C.uint64_t(flags)))
}

func cuGraphExecDestroy(ctx uintptr, exec uintptr) Code {
	return Code(C.weft_cuGraphExecDestroy(C.uintptr_t(ctx), C.uintptr_t(exec)))
}

func cuGraphUpload(ctx uintptr, exec uintptr, stream uintptr) Code {
	return Code(C.weft_cuGraphUpload(C.uintptr_t(ctx), C.uintptr_t(exec), C.uintptr_t(stream)))
}

func cuGraphLaunch(ctx uintptr, exec uintptr, stream uintptr) Code {
	return Code(C.weft_cuGraphLaunch(C.uintptr_t(ctx), C.uintptr_t(exec), C.uintptr_t(stream)))
}

func cuModuleLoadData(ctx uintptr, out *uintptr, image unsafe.Pointer) Code {
	return Code(C.weft_cuModuleLoadData(C.uintptr_t(ctx), (*C.uintptr_t)(unsafe.Pointer(out)), image))
}

func cuModuleUnload(ctx uintptr, module uintptr) Code {
	return Code(C.weft_cuModuleUnload(C.uintptr_t(ctx), C.uintptr_t(module)))
}

func cuModuleGetFunction(ctx uintptr, out *uintptr, module uintptr, name unsafe.Pointer) Code {
	return Code(C.weft_cuModuleGetFunction(C.uintptr_t(ctx), (*C.uintptr_t)(unsafe.Pointer(out)), C.uintptr_t(module), name))
}

func cuModuleGetGlobal(ctx uintptr, addr *uintptr, bytes *uintptr, module uintptr, name unsafe.Pointer) Code {
	return Code(C.weft_cuModuleGetGlobal(C.uintptr_t(ctx), (*C.uintptr_t)(unsafe.Pointer(addr)), (*C.size_t)(unsafe.Pointer(bytes)), C.uintptr_t(module), name))
}

func cuFuncGetAttribute(ctx uintptr, value *int32, attr int32, f uintptr) Code {
	return Code(C.weft_cuFuncGetAttribute(C.uintptr_t(ctx), (*C.int32_t)(value), C.int32_t(attr), C.uintptr_t(f)))
}

func cuFuncSetAttribute(ctx uintptr, f uintptr, attr int32, value int32) Code {
	return Code(C.weft_cuFuncSetAttribute(C.uintptr_t(ctx), C.uintptr_t(f), C.int32_t(attr), C.int32_t(value)))
}

func cuFuncGetParamInfo(ctx uintptr, f uintptr, index uintptr, offset *uintptr, bytes *uintptr) Code {
	return Code(C.weft_cuFuncGetParamInfo(C.uintptr_t(ctx), C.uintptr_t(f), C.size_t(index), (*C.size_t)(unsafe.Pointer(offset)), (*C.size_t)(unsafe.Pointer(bytes))))
}

func cuOccupancyMaxActiveBlocksPerMultiprocessor(ctx uintptr, n *int32, f uintptr, threads int32, shared uintptr) Code {
	return Code(C.weft_cuOccupancyMaxActiveBlocksPerMultiprocessor(C.uintptr_t(ctx), (*C.int32_t)(n), C.uintptr_t(f), C.int32_t(threads), C.size_t(shared)))
}
