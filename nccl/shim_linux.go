//go:build linux && cgo

package nccl

/*
#include "calls.h"
#include <stdlib.h>

#cgo noescape wn_call
#cgo nocallback wn_call
#cgo noescape wn_init
#cgo nocallback wn_init
#cgo noescape wn_enqueue
#cgo nocallback wn_enqueue
#cgo noescape wn_simulate
#cgo nocallback wn_simulate
#cgo noescape wn_copy_rows
#cgo nocallback wn_copy_rows
#cgo noescape wn_team_of
#cgo nocallback wn_team_of
*/
import "C"

import (
	"runtime"
	"strings"
	"unsafe"

	"github.com/weftgo/weft/internal/dl"
)

// The numbers of calls.h's rows.
const (
	callGetVersion         = C.wn_ncclGetVersion
	callGetUniqueID        = C.wn_ncclGetUniqueId
	callInitRank           = C.wn_ncclCommInitRank
	callInitRankConfig     = C.wn_ncclCommInitRankConfig
	callInitRankScalable   = C.wn_ncclCommInitRankScalable
	callInitAll            = C.wn_ncclCommInitAll
	callFinalize           = C.wn_ncclCommFinalize
	callDestroy            = C.wn_ncclCommDestroy
	callAbort              = C.wn_ncclCommAbort
	callRevoke             = C.wn_ncclCommRevoke
	callSplit              = C.wn_ncclCommSplit
	callShrink             = C.wn_ncclCommShrink
	callCommGetUniqueID    = C.wn_ncclCommGetUniqueId
	callGrow               = C.wn_ncclCommGrow
	callAsyncError         = C.wn_ncclCommGetAsyncError
	callCount              = C.wn_ncclCommCount
	callCuDevice           = C.wn_ncclCommCuDevice
	callUserRank           = C.wn_ncclCommUserRank
	callMemAlloc           = C.wn_ncclMemAlloc
	callMemFree            = C.wn_ncclMemFree
	callRegister           = C.wn_ncclCommRegister
	callDeregister         = C.wn_ncclCommDeregister
	callWindowRegister     = C.wn_ncclCommWindowRegister
	callWindowDeregister   = C.wn_ncclCommWindowDeregister
	callWinGetUserPtr      = C.wn_ncclWinGetUserPtr
	callLsaPointer         = C.wn_ncclGetLsaDevicePointer
	callPeerPointer        = C.wn_ncclGetPeerDevicePointer
	callLsaMultimemPointer = C.wn_ncclGetLsaMultimemDevicePointer
	callQueryProperties    = C.wn_ncclCommQueryProperties
	callDevCommCreate      = C.wn_ncclDevCommCreate
	callDevCommDestroy     = C.wn_ncclDevCommDestroy
	callRedOpCreate        = C.wn_ncclRedOpCreatePreMulSum
	callRedOpDestroy       = C.wn_ncclRedOpDestroy
	callPutSignal          = C.wn_ncclPutSignal
	callSignal             = C.wn_ncclSignal
	callWaitSignal         = C.wn_ncclWaitSignal
	callSuspend            = C.wn_ncclCommSuspend
	callResume             = C.wn_ncclCommResume
	callMemStats           = C.wn_ncclCommMemStats
	callParamGetParameter  = C.wn_ncclParamGetParameter
	callParamKeys          = C.wn_ncclParamGetAllParameterKeys
	callSimulate           = C.wn_ncclGroupSimulateEnd
	callAlltoAll           = C.wn_ncclAlltoAll
	callGather             = C.wn_ncclGather
	callScatter            = C.wn_ncclScatter
	callTeamWorld          = C.wn_ncclTeamWorld
	callTeamLsa            = C.wn_ncclTeamLsa
	callTeamRail           = C.wn_ncclTeamRail
	callSend               = C.wn_ncclSend
	callTeamRankToWorld    = C.wn_ncclTeamRankToWorld
	callTeamRankToLsa      = C.wn_ncclTeamRankToLsa
	callLsaBarrier         = C.wn_ncclLsaBarrierCreateRequirement
	callGinBarrier         = C.wn_ncclGinBarrierCreateRequirement
	callCalcSlots          = C.wn_ncclLLA2ACalcSlots
	callLLA2A              = C.wn_ncclLLA2ACreateRequirement
	callGroupEnd           = C.wn_ncclGroupEnd
	callAllReduce          = C.wn_ncclAllReduce
	textBytes              = 512
)

// symbols returns the rows of calls.h.
func symbols() []dl.Symbol {
	var rows []dl.Symbol
	for i := C.int32_t(0); ; i++ {
		var since *C.char
		name := C.wn_symbol(i, &since)
		if name == nil {
			return rows
		}
		rows = append(rows, dl.Symbol{Name: C.GoString(name), Since: C.GoString(since)})
	}
}

func bindSymbols(addrs []uintptr) {
	for i, a := range addrs {
		C.wn_bind(C.int32_t(i), C.uintptr_t(a))
	}
}

func bindCUDA(a [4]uintptr) {
	C.wn_bind_cuda(C.uintptr_t(a[0]), C.uintptr_t(a[1]), C.uintptr_t(a[2]), C.uintptr_t(a[3]))
}

func copyC(j *job, x *RowCopy) Result {
	return Result(C.wn_copy_rows((*C.wn_job)(unsafe.Pointer(j)), (*C.wn_copy)(unsafe.Pointer(x))))
}

// callC runs one row. a holds its words, and what it gives back afterwards.
func callC(ctx uintptr, call int, a []uint64, text *[textBytes]byte) Result {
	return Result(C.wn_call(C.uintptr_t(ctx), C.int32_t(call), (*C.uint64_t)(unsafe.SliceData(a)), (*C.char)(unsafe.Pointer(text)), textBytes))
}

func initC(ctxs, outs []uint64, ranks []int32, size int, id *ID, cfg *layout, text *[textBytes]byte) Result {
	return Result(C.wn_init(C.int32_t(len(ctxs)), (*C.uint64_t)(unsafe.SliceData(ctxs)), (*C.uint64_t)(unsafe.SliceData(outs)),
		(*C.int32_t)(unsafe.SliceData(ranks)), C.int32_t(size), unsafe.Pointer(id), unsafe.Pointer(cfg), (*C.char)(unsafe.Pointer(text)), textBytes))
}

func enqueueC(j *job, ops []Call, before, after []RowCopy, text *[textBytes]byte) Result {
	return Result(C.wn_enqueue((*C.wn_job)(unsafe.Pointer(j)), (*C.wn_op)(unsafe.Pointer(unsafe.SliceData(ops))),
		(*C.wn_copy)(unsafe.Pointer(unsafe.SliceData(before))), (*C.wn_copy)(unsafe.Pointer(unsafe.SliceData(after))),
		(*C.char)(unsafe.Pointer(text)), textBytes))
}

func simulateC(j *job, ops []Call, ms *float32, text *[textBytes]byte) Result {
	return Result(C.wn_simulate((*C.wn_job)(unsafe.Pointer(j)), (*C.wn_op)(unsafe.Pointer(unsafe.SliceData(ops))), (*C.float)(ms),
		(*C.char)(unsafe.Pointer(text)), textBytes))
}

func teamC(call int, comm uintptr, t *Team) Result {
	return Result(C.wn_team_of(C.int32_t(call), C.uintptr_t(comm), (*C.wn_team)(unsafe.Pointer(t))))
}

func paramKeysC() ([]string, Result) {
	const size = 64 << 10
	buf := (*C.char)(C.calloc(1, size))
	defer C.free(unsafe.Pointer(buf))
	r := Result(C.wn_param_keys(buf, size))
	return strings.Fields(C.GoString(buf)), r
}

// codeText returns the library's own sentence for a code.
func codeText(r Result) string {
	var buf [textBytes]byte
	C.wn_code_text(C.int32_t(r), (*C.char)(unsafe.Pointer(&buf)), textBytes)
	return text(&buf)
}

func lastErrorC() string { return C.GoString(C.wn_last_error()) }

// slotNew returns a zeroed word of C memory: the library writes handles there after the call has returned.
func slotNew() uintptr { return uintptr(C.wn_new()) }

func slotFree(slot uintptr) { C.wn_free(C.uintptr_t(slot)) }

func slotLoad(slot uintptr) uintptr { return uintptr(C.wn_word(C.uintptr_t(slot))) }

// cString returns a copy in C memory, 0 for an empty one.
func cString(s string) uintptr {
	if s == "" {
		return 0
	}
	return uintptr(unsafe.Pointer(C.CString(s)))
}

func goString(addr uintptr) string {
	if addr == 0 {
		return ""
	}
	return C.GoString(C.wn_string(C.uintptr_t(addr)))
}

// slotStore writes a handle.
func slotStore(slot, handle uintptr) { C.wn_store(C.uintptr_t(slot), C.uintptr_t(handle)) }

// paramC reads a parameter's text on the thread that asked.
func paramC(a []uint64, msg *[textBytes]byte) (string, Result) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	r := callC(0, callParamGetParameter, a, msg)
	if r != Success {
		return "", r
	}
	return goString(uintptr(a[1])), r
}
