package cublaslt

import (
	"fmt"
	"sync"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/cuda"
	"github.com/weftgo/weft/internal/dl"
	"github.com/weftgo/weft/internal/envknob"
)

var cublasltLib = envknob.Register("WEFT_CUBLASLT_LIB", "libcublasLt, matrix products on the GPU: its file or its folder")

var loaded struct {
	once    sync.Once
	lib     *dl.Library
	version string
	err     error
}

// Error is what this package returns.
type Error struct {
	Text   string
	Status int // a cublasStatus_t, or 0
	Code   comm.Code
	Err    error
}

// Error returns the text, the library's words for the status, and the cause.
func (e *Error) Error() string {
	s := "cublaslt: " + e.Text
	if e.Status != 0 {
		s += fmt.Sprintf(": %s (%d)", statusText(e.Status), e.Status)
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Is reports whether target is the error's class.
func (e *Error) Is(target error) bool { return target == error(e.Code) }

func check(status int32, format string, args ...any) error {
	if status == 0 {
		return nil
	}
	e := &Error{Text: fmt.Sprintf(format, args...), Status: int(status), Code: comm.Internal}
	switch status {
	case 3, 8, 15: // out of memory, another architecture, not supported
		e.Code = comm.Unavailable
	case 7:
		e.Code = comm.Invalid
	}
	return e
}

// Init opens libcublasLt, once a process; it needs no GPU. The error is comm.Unavailable and lists every path that was
// tried.
func Init() error {
	loaded.once.Do(func() {
		if err := load(); err != nil {
			loaded.err = &Error{Text: "matrix products are not available", Code: comm.Unavailable, Err: err}
		}
	})
	return loaded.err
}

func load() error {
	lib, err := dl.Open(dl.Spec{
		Name:    "libcublasLt",
		Sonames: []string{"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"},
		Env:     cublasltLib,
		Wheels:  true,
	})
	if err != nil {
		return err
	}
	loaded.lib = lib
	addrs, err := lib.Bind(Symbols())
	if err != nil {
		return err
	}
	bind(addrs)
	v := version()
	loaded.version = fmt.Sprintf("%d.%d.%d", v/10000, v%10000/100, v%100)
	return nil
}

// Library describes the libcublasLt in use.
type Library struct {
	Path    string       `json:"path"`
	Version string       `json:"version"`
	Tried   []dl.Attempt `json:"tried"`
}

// Loaded returns what Init found. Tried is filled in when it found nothing too.
func Loaded() (Library, error) {
	err := Init()
	l := Library{Version: loaded.version}
	l.Path, l.Tried = dl.Outcome(loaded.lib, err)
	return l, err
}

// initContext gives the shims libcuda's function that makes a context current.
func initContext() error {
	if err := Init(); err != nil {
		return err
	}
	set, err := cuda.Symbol("cuCtxSetCurrent")
	if err != nil {
		return err
	}
	bindContext(set)
	return nil
}
