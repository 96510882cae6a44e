//go:build linux && cgo && weft_cost

package nccl

import (
	"github.com/weftgo/weft/cuda"
	"github.com/weftgo/weft/nccl/internal/calls"
)

// RepeatC is NCCL's own call in a loop in C: the yardstick for what the binding adds. It returns the nanoseconds of one call, -1 when one
// fails. Tests alone are built with it.
func RepeatC(c *Communicator, s *cuda.Stream, call Call, n int) float64 {
	set, err := cuda.Symbol("cuCtxSetCurrent")
	if err != nil {
		return -1
	}
	functions := [3]uintptr{loaded.lib.Lookup("ncclAllReduce"), loaded.lib.Lookup("ncclCommGetAsyncError"), set}
	return calls.Repeat(functions, c.dev.Context(), uintptr(call.Src), uintptr(call.Dst), uintptr(call.Count), uintptr(call.Type), c.Handle(),
		s.Handle(), c.blocking, n)
}
