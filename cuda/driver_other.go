//go:build !(linux && cgo)

package cuda

import (
	"unsafe"

	"github.com/weftgo/weft/internal/dl"
)

func symbols() []dl.Symbol         { return nil }
func bindSymbols([]uintptr)        {}
func errorText(Code) (_, _ string) { return "", "" }

func memCreate(uintptr, *uintptr, uintptr, int32, int32) Code                   { return noLibrary }
func granularity(*uintptr, int32, int32) Code                                   { return noLibrary }
func setAccess(_, _, _ uintptr, _ []int32) Code                                 { return noLibrary }
func ipcOpen(uintptr, *uintptr, unsafe.Pointer) Code                            { return noLibrary }
func copyHost(_, _, _ uintptr, _ unsafe.Pointer, _, _ uintptr) Code             { return noLibrary }
func execUpdate(_, _, _ uintptr, _ *int32) Code                                 { return noLibrary }
func launchKernel(_, _, _ uintptr, _ *Launch, _ unsafe.Pointer, _ uintptr) Code { return noLibrary }
func maxClusters(_, _ uintptr, _ *Launch, _ *int32) Code                        { return noLibrary }

func cuInit(uint32) Code                                                            { return noLibrary }
func cuDriverGetVersion(*int32) Code                                                { return noLibrary }
func cuDeviceGetCount(*int32) Code                                                  { return noLibrary }
func cuDeviceGet(*int32, int32) Code                                                { return noLibrary }
func cuDeviceGetName(unsafe.Pointer, int32, int32) Code                             { return noLibrary }
func cuDeviceGetUuid(unsafe.Pointer, int32) Code                                    { return noLibrary }
func cuDeviceTotalMem(*uintptr, int32) Code                                         { return noLibrary }
func cuDeviceGetAttribute(*int32, int32, int32) Code                                { return noLibrary }
func cuDeviceGetPCIBusId(unsafe.Pointer, int32, int32) Code                         { return noLibrary }
func cuDeviceCanAccessPeer(*int32, int32, int32) Code                               { return noLibrary }
func cuDeviceGetP2PAttribute(*int32, int32, int32, int32) Code                      { return noLibrary }
func cuDevicePrimaryCtxRetain(*uintptr, int32) Code                                 { return noLibrary }
func cuDevicePrimaryCtxRelease(int32) Code                                          { return noLibrary }
func cuCtxEnablePeerAccess(uintptr, uintptr, uint32) Code                           { return noLibrary }
func cuCtxGetStreamPriorityRange(uintptr, *int32, *int32) Code                      { return noLibrary }
func cuMemGetInfo(uintptr, *uintptr, *uintptr) Code                                 { return noLibrary }
func cuMemAlloc(uintptr, *uintptr, uintptr) Code                                    { return noLibrary }
func cuMemFree(uintptr, uintptr) Code                                               { return noLibrary }
func cuMemHostAlloc(uintptr, *uintptr, uintptr, uint32) Code                        { return noLibrary }
func cuMemFreeHost(uintptr, uintptr) Code                                           { return noLibrary }
func cuMemHostRegister(uintptr, uintptr, uintptr, uint32) Code                      { return noLibrary }
func cuMemHostUnregister(uintptr, uintptr) Code                                     { return noLibrary }
func cuMemcpyAsync(uintptr, uintptr, uintptr, uintptr, uintptr) Code                { return noLibrary }
func cuMemsetD8Async(uintptr, uintptr, uint8, uintptr, uintptr) Code                { return noLibrary }
func cuMemsetD32Async(uintptr, uintptr, uint32, uintptr, uintptr) Code              { return noLibrary }
func cuPointerGetAttribute(uintptr, unsafe.Pointer, int32, uintptr) Code            { return noLibrary }
func cuMemAddressReserve(uintptr, *uintptr, uintptr, uintptr, uintptr, uint64) Code { return noLibrary }
func cuMemAddressFree(uintptr, uintptr, uintptr) Code                               { return noLibrary }
func cuMemRelease(uintptr, uintptr) Code                                            { return noLibrary }
func cuMemMap(uintptr, uintptr, uintptr, uintptr, uintptr, uint64) Code             { return noLibrary }
func cuMemUnmap(uintptr, uintptr, uintptr) Code                                     { return noLibrary }
func cuMemExportToShareableHandle(uintptr, unsafe.Pointer, uintptr, int32, uint64) Code {
	return noLibrary
}
func cuMemImportFromShareableHandle(uintptr, *uintptr, uintptr, int32) Code       { return noLibrary }
func cuIpcGetMemHandle(uintptr, unsafe.Pointer, uintptr) Code                     { return noLibrary }
func cuIpcCloseMemHandle(uintptr, uintptr) Code                                   { return noLibrary }
func cuStreamCreateWithPriority(uintptr, *uintptr, uint32, int32) Code            { return noLibrary }
func cuStreamDestroy(uintptr, uintptr) Code                                       { return noLibrary }
func cuStreamQuery(uintptr, uintptr) Code                                         { return noLibrary }
func cuStreamSynchronize(uintptr, uintptr) Code                                   { return noLibrary }
func cuStreamWaitEvent(uintptr, uintptr, uintptr, uint32) Code                    { return noLibrary }
func cuStreamGetCtx(uintptr, uintptr, *uintptr) Code                              { return noLibrary }
func cuStreamIsCapturing(uintptr, uintptr, *int32) Code                           { return noLibrary }
func cuStreamBeginCapture(uintptr, uintptr, int32) Code                           { return noLibrary }
func cuStreamEndCapture(uintptr, uintptr, *uintptr) Code                          { return noLibrary }
func cuStreamWriteValue32(uintptr, uintptr, uintptr, uint32, uint32) Code         { return noLibrary }
func cuStreamWaitValue32(uintptr, uintptr, uintptr, uint32, uint32) Code          { return noLibrary }
func cuEventCreate(uintptr, *uintptr, uint32) Code                                { return noLibrary }
func cuEventDestroy(uintptr, uintptr) Code                                        { return noLibrary }
func cuEventRecord(uintptr, uintptr, uintptr) Code                                { return noLibrary }
func cuEventQuery(uintptr, uintptr) Code                                          { return noLibrary }
func cuEventSynchronize(uintptr, uintptr) Code                                    { return noLibrary }
func cuEventElapsedTime(uintptr, *float32, uintptr, uintptr) Code                 { return noLibrary }
func cuGraphDestroy(uintptr, uintptr) Code                                        { return noLibrary }
func cuGraphGetNodes(uintptr, uintptr, unsafe.Pointer, *uintptr) Code             { return noLibrary }
func cuGraphInstantiateWithFlags(uintptr, *uintptr, uintptr, uint64) Code         { return noLibrary }
func cuGraphExecDestroy(uintptr, uintptr) Code                                    { return noLibrary }
func cuGraphUpload(uintptr, uintptr, uintptr) Code                                { return noLibrary }
func cuGraphLaunch(uintptr, uintptr, uintptr) Code                                { return noLibrary }
func cuModuleLoadData(uintptr, *uintptr, unsafe.Pointer) Code                     { return noLibrary }
func cuModuleUnload(uintptr, uintptr) Code                                        { return noLibrary }
func cuModuleGetFunction(uintptr, *uintptr, uintptr, unsafe.Pointer) Code         { return noLibrary }
func cuModuleGetGlobal(uintptr, *uintptr, *uintptr, uintptr, unsafe.Pointer) Code { return noLibrary }
func cuFuncGetAttribute(uintptr, *int32, int32, uintptr) Code                     { return noLibrary }
func cuFuncSetAttribute(uintptr, uintptr, int32, int32) Code                      { return noLibrary }
func cuFuncGetParamInfo(uintptr, uintptr, uintptr, *uintptr, *uintptr) Code       { return noLibrary }
func cuOccupancyMaxActiveBlocksPerMultiprocessor(uintptr, *int32, uintptr, int32, uintptr) Code {
	return noLibrary
}
