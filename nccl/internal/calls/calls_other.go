//go:build !(linux && cgo)

package calls

import (
	"unsafe"

	"github.com/weftgo/weft/internal/dl"
)

// No row can be there: needs answers before one is called.
const (
	GetVersion = iota
	GetUniqueID
	InitRank
	InitRankConfig
	InitRankScalable
	InitAll
	Finalize
	Destroy
	Abort
	Revoke
	Split
	Shrink
	CommGetUniqueID
	Grow
	AsyncError
	Count
	CuDevice
	UserRank
	MemAlloc
	MemFree
	Register
	Deregister
	WindowRegister
	WindowDeregister
	WinGetUserPtr
	LsaPointer
	PeerPointer
	LsaMultimemPointer
	QueryProperties
	DevCommCreate
	DevCommDestroy
	RedOpCreate
	RedOpDestroy
	PutSignal
	Signal
	WaitSignal
	Suspend
	Resume
	MemStats
	ParamGetParameter
	ParamKeys
	Simulate
	AlltoAll
	Gather
	Scatter
	TeamWorld
	TeamLsa
	TeamRail
	Send
	TeamRankToWorld
	TeamRankToLsa
	LsaBarrier
	GinBarrier
	CalcSlots
	LLA2A
	GroupEnd
	AllReduce

	TextBytes = 512
)

// Nothing can be called here.

func Symbols() []dl.Symbol           { return nil }
func Bind([]uintptr)                 {}
func BindCUDA([4]uintptr)            {}
func Copy(_, _ unsafe.Pointer) int32 { return NoLibrary }
func CodeText(int32) string          { return "" }
func LastError() string              { return "" }
func NewSlot() uintptr               { return 0 }
func FreeSlot(uintptr)               {}
func Load(uintptr) uintptr           { return 0 }
func Store(_, _ uintptr)             {}
func CString(string) uintptr         { return 0 }
func ParamNames() ([]string, int32)  { return nil, NoLibrary }

func Run(uintptr, int, []uint64, *[TextBytes]byte) int32                 { return NoLibrary }
func Team(int, uintptr, unsafe.Pointer) int32                            { return NoLibrary }
func Param([]uint64, *[TextBytes]byte) (string, int32)                   { return "", NoLibrary }
func Estimate(_, _ unsafe.Pointer, _ *float32, _ *[TextBytes]byte) int32 { return NoLibrary }
func Init(_, _ []uint64, _ []int32, _ int, _, _ unsafe.Pointer, _ *[TextBytes]byte) int32 {
	return NoLibrary
}
func Enqueue(_, _, _, _ unsafe.Pointer, _ *[TextBytes]byte) int32 { return NoLibrary }
