//go:build !(linux && cgo)

package nvshmem

import "github.com/weftgo/weft/internal/dl"

const (
	callFinalize = iota
	callFree
	callBarrierAll
	callSyncAll
	callBarrierAllOnStream
	callSyncAllOnStream
	callQuietOnStream
	callPut
	callGet
	callPutSignal
	callSignal
	callSignalWait
	callTeamSync
	callTeamBarrier
	callAllToAll
	callFCollect
	callBroadcast
	callSumF32
	callSumBF16
	callModuleInit
	callModuleFinalize
)

// Symbols returns nothing: without cgo, or not on Linux, no library is opened.
func Symbols() []dl.Symbol { return nil }

func bindSymbols([]uintptr)                    {}
func has(string) bool                          { return false }
func bindCurrent(uintptr)                      {}
func libraryVersion() Version                  { return Version{} }
func initStatus() int                          { return 0 }
func uniqueID(uintptr) ([]byte, int)           { return nil, -1 }
func initialize(uintptr, int, int, []byte) int { return -1 }
func myPE() int                                { return -1 }
func numPEs() int                              { return 0 }
func run(uintptr, int, *[8]uint64) int         { return -1 }
func malloc(uintptr, int) uintptr              { return 0 }
func ptr(uintptr, uintptr, int) uintptr        { return 0 }
