//go:build !(linux && cgo)

package nccl

import "github.com/weftgo/weft/internal/dl"

// No row can be there: needs answers before one is called.
const (
	callGetVersion = iota
	callGetUniqueID
	callInitRank
	callInitRankConfig
	callInitRankScalable
	callInitAll
	callFinalize
	callDestroy
	callAbort
	callRevoke
	callSplit
	callShrink
	callCommGetUniqueID
	callGrow
	callAsyncError
	callCount
	callCuDevice
	callUserRank
	callMemAlloc
	callMemFree
	callRegister
	callDeregister
	callWindowRegister
	callWindowDeregister
	callWinGetUserPtr
	callLsaPointer
	callPeerPointer
	callLsaMultimemPointer
	callQueryProperties
	callDevCommCreate
	callDevCommDestroy
	callRedOpCreate
	callRedOpDestroy
	callPutSignal
	callSignal
	callWaitSignal
	callSuspend
	callResume
	callMemStats
	callParamGetParameter
	callParamKeys
	callSimulate
	callAlltoAll
	callGather
	callScatter
	callTeamWorld
	callTeamLsa
	callTeamRail
	callSend
	callTeamRankToWorld
	callTeamRankToLsa
	callLsaBarrier
	callGinBarrier
	callCalcSlots
	callLLA2A
	callGroupEnd
	callAllReduce

	textBytes = 512
)

func symbols() []dl.Symbol           { return nil }
func bindSymbols([]uintptr)          {}
func bindCUDA([4]uintptr)            {}
func copyC(*job, *RowCopy) Result    { return noLibrary }
func codeText(Result) string         { return "" }
func lastErrorC() string             { return "" }
func slotNew() uintptr               { return 0 }
func slotFree(uintptr)               {}
func slotLoad(uintptr) uintptr       { return 0 }
func slotStore(_, _ uintptr)         {}
func cString(string) uintptr         { return 0 }
func paramKeysC() ([]string, Result) { return nil, noLibrary }

func callC(uintptr, int, []uint64, *[textBytes]byte) Result     { return noLibrary }
func teamC(int, uintptr, *Team) Result                          { return noLibrary }
func paramC([]uint64, *[textBytes]byte) (string, Result)        { return "", noLibrary }
func simulateC(*job, []Call, *float32, *[textBytes]byte) Result { return noLibrary }
func initC(_, _ []uint64, _ []int32, _ int, _ *ID, _ *layout, _ *[textBytes]byte) Result {
	return noLibrary
}
func enqueueC(*job, []Call, []RowCopy, []RowCopy, *[textBytes]byte) Result { return noLibrary }
