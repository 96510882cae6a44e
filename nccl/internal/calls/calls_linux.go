//go:build linux && cgo

package calls

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
// The rows, and the bytes of a message.
const (
	GetVersion         = C.wn_ncclGetVersion
	GetUniqueID        = C.wn_ncclGetUniqueId
	InitRank           = C.wn_ncclCommInitRank
	InitRankConfig     = C.wn_ncclCommInitRankConfig
	InitRankScalable   = C.wn_ncclCommInitRankScalable
	InitAll            = C.wn_ncclCommInitAll
	Finalize           = C.wn_ncclCommFinalize
	Destroy            = C.wn_ncclCommDestroy
	Abort              = C.wn_ncclCommAbort
	Revoke             = C.wn_ncclCommRevoke
	Split              = C.wn_ncclCommSplit
	Shrink             = C.wn_ncclCommShrink
	CommGetUniqueID    = C.wn_ncclCommGetUniqueId
	Grow               = C.wn_ncclCommGrow
	AsyncError         = C.wn_ncclCommGetAsyncError
	Count              = C.wn_ncclCommCount
	CuDevice           = C.wn_ncclCommCuDevice
	UserRank           = C.wn_ncclCommUserRank
	MemAlloc           = C.wn_ncclMemAlloc
	MemFree            = C.wn_ncclMemFree
	Register           = C.wn_ncclCommRegister
	Deregister         = C.wn_ncclCommDeregister
	WindowRegister     = C.wn_ncclCommWindowRegister
	WindowDeregister   = C.wn_ncclCommWindowDeregister
	WinGetUserPtr      = C.wn_ncclWinGetUserPtr
	LsaPointer         = C.wn_ncclGetLsaDevicePointer
	PeerPointer        = C.wn_ncclGetPeerDevicePointer
	LsaMultimemPointer = C.wn_ncclGetLsaMultimemDevicePointer
	QueryProperties    = C.wn_ncclCommQueryProperties
	DevCommCreate      = C.wn_ncclDevCommCreate
	DevCommDestroy     = C.wn_ncclDevCommDestroy
	RedOpCreate        = C.wn_ncclRedOpCreatePreMulSum
	RedOpDestroy       = C.wn_ncclRedOpDestroy
	PutSignal          = C.wn_ncclPutSignal
	Signal             = C.wn_ncclSignal
	WaitSignal         = C.wn_ncclWaitSignal
	Suspend            = C.wn_ncclCommSuspend
	Resume             = C.wn_ncclCommResume
	MemStats           = C.wn_ncclCommMemStats
	ParamGetParameter  = C.wn_ncclParamGetParameter
	ParamKeys          = C.wn_ncclParamGetAllParameterKeys
	Simulate           = C.wn_ncclGroupSimulateEnd
	AlltoAll           = C.wn_ncclAlltoAll
	Gather             = C.wn_ncclGather
	Scatter            = C.wn_ncclScatter
	TeamWorld          = C.wn_ncclTeamWorld
	TeamLsa            = C.wn_ncclTeamLsa
	TeamRail           = C.wn_ncclTeamRail
	Send               = C.wn_ncclSend
	TeamRankToWorld    = C.wn_ncclTeamRankToWorld
	TeamRankToLsa      = C.wn_ncclTeamRankToLsa
	LsaBarrier         = C.wn_ncclLsaBarrierCreateRequirement
	GinBarrier         = C.wn_ncclGinBarrierCreateRequirement
	CalcSlots          = C.wn_ncclLLA2ACalcSlots
	LLA2A              = C.wn_ncclLLA2ACreateRequirement
	GroupEnd           = C.wn_ncclGroupEnd
	AllReduce          = C.wn_ncclAllReduce
	TextBytes          = 512
)

// Symbols returns the rows of calls.h.
func Symbols() []dl.Symbol {
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

// Bind tells C where the rows' functions are, 0 for one that is not there.
func Bind(addrs []uintptr) {
	for i, a := range addrs {
		C.wn_bind(C.int32_t(i), C.uintptr_t(a))
	}
}

// BindCUDA tells C where libcuda's functions are: of contexts, get and set; of copies, of rows with pitches and of bytes.
func BindCUDA(a [4]uintptr) {
	C.wn_bind_cuda(C.uintptr_t(a[0]), C.uintptr_t(a[1]), C.uintptr_t(a[2]), C.uintptr_t(a[3]))
}

// Run makes one call of a row. a holds its words, and what it gives back afterwards.
func Run(ctx uintptr, call int, a []uint64, text *[TextBytes]byte) int32 {
	return int32(C.wn_call(C.uintptr_t(ctx), C.int32_t(call), (*C.uint64_t)(unsafe.SliceData(a)), (*C.char)(unsafe.Pointer(text)), TextBytes))
}

// Init makes several ranks' communicators in one group. id is a wn_id and cfg a wn_config.
func Init(ctxs, outs []uint64, ranks []int32, size int, id, cfg unsafe.Pointer, text *[TextBytes]byte) int32 {
	return int32(C.wn_init(C.int32_t(len(ctxs)), (*C.uint64_t)(unsafe.SliceData(ctxs)), (*C.uint64_t)(unsafe.SliceData(outs)),
		(*C.int32_t)(unsafe.SliceData(ranks)), C.int32_t(size), id, cfg, (*C.char)(unsafe.Pointer(text)), TextBytes))
}

// Enqueue issues a wn_job: wn_copy, wn_op, wn_copy, as many as it says.
func Enqueue(job, ops, before, after unsafe.Pointer, text *[TextBytes]byte) int32 {
	return int32(C.wn_enqueue((*C.wn_job)(job), (*C.wn_op)(ops), (*C.wn_copy)(before), (*C.wn_copy)(after), (*C.char)(unsafe.Pointer(text)), TextBytes))
}

// Copy enqueues one wn_copy.
func Copy(job, x unsafe.Pointer) int32 {
	return int32(C.wn_copy_rows((*C.wn_job)(job), (*C.wn_copy)(x)))
}

// Estimate estimates the time of a wn_job's wn_ops.
func Estimate(job, ops unsafe.Pointer, ms *float32, text *[TextBytes]byte) int32 {
	return int32(C.wn_simulate((*C.wn_job)(job), (*C.wn_op)(ops), (*C.float)(ms), (*C.char)(unsafe.Pointer(text)), TextBytes))
}

// Team fills a wn_team with a team of a communicator.
func Team(call int, comm uintptr, t unsafe.Pointer) int32 {
	return int32(C.wn_team_of(C.int32_t(call), C.uintptr_t(comm), (*C.wn_team)(t)))
}

// ParamNames returns the names of the library's parameters.
func ParamNames() ([]string, int32) {
	const size = 64 << 10
	buf := (*C.char)(C.calloc(1, size))
	defer C.free(unsafe.Pointer(buf))
	r := int32(C.wn_param_keys(buf, size))
	return strings.Fields(C.GoString(buf)), r
}

// CodeText returns the library's own sentence for a code, empty when it has none.
func CodeText(r int32) string {
	var buf [TextBytes]byte
	C.wn_code_text(C.int32_t(r), (*C.char)(unsafe.Pointer(&buf)), TextBytes)
	return Text(&buf)
}

// LastError returns the library's last message.
func LastError() string { return C.GoString(C.wn_last_error()) }

// NewSlot returns a zeroed word of C memory: the library writes handles there after the call has returned.
func NewSlot() uintptr { return uintptr(C.wn_new()) }

// FreeSlot frees the memory of NewSlot or CString.
func FreeSlot(slot uintptr) { C.wn_free(C.uintptr_t(slot)) }

// Load reads a slot.
func Load(slot uintptr) uintptr { return uintptr(C.wn_word(C.uintptr_t(slot))) }

// Store writes a slot.
func Store(slot, handle uintptr) { C.wn_store(C.uintptr_t(slot), C.uintptr_t(handle)) }

// CString returns a copy in C memory, 0 for an empty one.
func CString(s string) uintptr {
	if s == "" {
		return 0
	}
	return uintptr(unsafe.Pointer(C.CString(s)))
}

// Param reads a parameter's text on the thread that asked: the text is the thread's.
func Param(a []uint64, msg *[TextBytes]byte) (string, int32) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	r := Run(0, ParamGetParameter, a, msg)
	if r != 0 || a[1] == 0 {
		return "", r
	}
	return C.GoString(C.wn_string(C.uintptr_t(a[1]))), r
}
