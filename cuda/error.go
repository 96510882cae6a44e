package cuda

import (
	"fmt"

	"github.com/weftgo/weft/comm"
)

// Code is a CUresult. It is itself an error, so that errors.Is(err, cuda.OutOfMemory) works.
type Code int32

// Codes that callers ask for.
const (
	success        Code = 0
	InvalidValue   Code = 1
	OutOfMemory    Code = 2
	NoDevice       Code = 100
	InvalidImage   Code = 200
	InvalidContext Code = 201
	PeerEnabled    Code = 704 // peer access is already enabled
	NotFound       Code = 500
	NotReady       Code = 600
	LaunchTimeout  Code = 702
	LaunchFailed   Code = 719
	NotSupported   Code = 801
	CaptureInvalid Code = 901 // the capture was invalidated by an earlier error

	noLibrary     Code = -1 // no libcuda, or no cgo
	missingSymbol Code = -2 // the driver is too old for this call
)

// Error returns the library's name of the code.
func (c Code) Error() string {
	switch c {
	case noLibrary:
		return "no CUDA driver"
	case missingSymbol:
		return "the driver is too old"
	}
	if name, text := errorText(c); name != "" {
		return fmt.Sprintf("%s (%d, %s)", name, int32(c), text)
	}
	return fmt.Sprintf("CUresult %d", int32(c))
}

// Error is what a call of this package returns when it fails.
type Error struct {
	Call   string // what was called, with its sizes
	Device int    // the ordinal; -1 when none was involved
	Code   Code
}

// Error returns "cuda: device 3: alloc 1024 bytes: CUDA_ERROR_OUT_OF_MEMORY (2, out of memory)".
func (e *Error) Error() string {
	if e.Device < 0 {
		return fmt.Sprintf("cuda: %s: %v", e.Call, e.Code)
	}
	return fmt.Sprintf("cuda: device %d: %s: %v", e.Device, e.Call, e.Code)
}

// Unwrap returns the Code.
func (e *Error) Unwrap() error { return e.Code }

// Is reports whether target is the class of the error: comm.Unavailable, comm.Invalid, comm.Timeout or comm.Internal.
func (e *Error) Is(target error) bool {
	c, ok := target.(comm.Code)
	return ok && c == e.Code.class()
}

// class maps a CUresult to weft's classes.
func (c Code) class() comm.Code {
	switch c {
	case noLibrary, missingSymbol, OutOfMemory, NoDevice, NotSupported, NotFound, InvalidImage, 101, 209, 222, 803, 804:
		return comm.Unavailable // 101 no such device; 209 no code for this GPU; 222 PTX too new; 803, 804 driver mismatch
	case InvalidValue, 400: // 400: a handle that is none
		return comm.Invalid
	case LaunchTimeout:
		return comm.Timeout
	}
	return comm.Internal
}

// check returns nil for success. The text is only built on failure.
func (d *Device) check(c Code, call string) error {
	if c == success {
		return nil
	}
	return &Error{Call: call, Device: d.info.Ordinal, Code: c}
}

// checkf is check with a text that has numbers in it; for calls off the hot path.
func (d *Device) checkf(c Code, format string, args ...any) error {
	if c == success {
		return nil
	}
	return d.check(c, fmt.Sprintf(format, args...))
}
