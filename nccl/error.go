package nccl

import (
	"fmt"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/cuda"
	"github.com/weftgo/weft/nccl/internal/calls"
)

// Result is an ncclResult_t. It is itself an error, so that errors.Is(err, nccl.RemoteError) works.
type Result int32

// The results.
const (
	Success         Result = 0
	CUDAError       Result = 1 // a CUDA call inside the library failed
	SystemError     Result = 2 // a system call inside the library failed
	InternalError   Result = 3
	InvalidArgument Result = 4
	InvalidUsage    Result = 5 // wrong use, such as one GPU for two ranks
	RemoteError     Result = 6 // a peer failed or is gone
	InProgress      Result = 7 // a non-blocking communicator is at work; see Communicator.Ready
	TimedOut        Result = 8 // 2.30 and newer
)

// Error returns the library's sentence for the code.
func (r Result) Error() string {
	switch {
	case r == calls.NoLibrary:
		return "no NCCL library"
	case r == calls.NoSymbol:
		return "the library is too old"
	case r <= calls.CUDABase:
		return cuda.Code(calls.CUDABase - r).Error()
	}
	if s := calls.CodeText(int32(r)); s != "" {
		return fmt.Sprintf("%s (%d)", s, int32(r))
	}
	return fmt.Sprintf("ncclResult %d", int32(r))
}

// class maps a result to weft's classes.
func (r Result) class() comm.Code {
	switch r {
	case calls.NoLibrary, calls.NoSymbol:
		return comm.Unavailable
	case InvalidArgument, InvalidUsage:
		return comm.Invalid
	case RemoteError:
		return comm.Remote
	case TimedOut:
		return comm.Timeout
	}
	return comm.Internal
}

// Error is what a call of this package returns when the library refuses or fails.
type Error struct {
	Call   string // what was called, with its sizes
	Result Result
	Text   string // the library's last message, read in the same call; empty when it has none
}

// Error returns "nccl: CommInitRank: invalid usage (5): Duplicate GPU detected ...".
func (e *Error) Error() string {
	s := fmt.Sprintf("nccl: %s: %v", e.Call, e.Result)
	if e.Text != "" {
		s += ": " + e.Text
	}
	return s
}

// Unwrap returns the Result.
func (e *Error) Unwrap() error { return e.Result }

// Is reports whether target is the class of the error.
func (e *Error) Is(target error) bool {
	c, ok := target.(comm.Code)
	return ok && c == e.Result.class()
}

// MissingError says that the library lacks a function. It is comm.Unavailable.
type MissingError struct {
	Function string // such as ncclCommGrow
	Since    string // the first version that has it
	Have     string // the version that was loaded
}

// Error names the function and both versions.
func (e *MissingError) Error() string {
	return fmt.Sprintf("nccl: the library is version %s and has no %s, which came with %s", e.Have, e.Function, e.Since)
}

// Is reports whether target is comm.Unavailable.
func (e *MissingError) Is(target error) bool { return target == error(comm.Unavailable) }

// needs returns nil if the library is open and has the row.
func needs(call int) error {
	if err := Init(); err != nil {
		return err
	}
	if !loaded.have[call] {
		return &MissingError{Function: loaded.rows[call].Name, Since: loaded.rows[call].Since, Have: versionText(loaded.version)}
	}
	return nil
}

// check makes an error of a result other than Success and InProgress. What is built on failure only may cost.
func check(r Result, call string, msg *[calls.TextBytes]byte) error {
	if r == Success || r == InProgress {
		return nil
	}
	e := &Error{Call: call, Result: r}
	if r > 0 {
		e.Text = calls.Text(msg)
	}
	return e
}

// run makes one call of a row.
func run(ctx uintptr, call int, a []uint64, msg *[calls.TextBytes]byte) Result {
	return Result(calls.Run(ctx, call, a, msg))
}

// LastError returns the library's last message, of any communicator of the process. Errors of this package have theirs
// already.
func LastError() string {
	if Init() != nil {
		return ""
	}
	return calls.LastError()
}
