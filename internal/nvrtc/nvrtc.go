package nvrtc

import (
	"fmt"
	"os"
	"strings"
	"sync"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/internal/dl"
	"github.com/weftgo/weft/internal/envknob"
)

var nvrtcLib = envknob.Register("WEFT_NVRTC_LIB", "libnvrtc, the compiler of kernels: its file or its folder")

var loaded struct {
	once    sync.Once
	lib     *dl.Library
	version string // for people: 13.0
	build   string // for keys: patch releases of one version differ in the size of their file
	err     error
}

// Error is what this package returns: what failed, the class, and the compiler's log, if it wrote any.
type Error struct {
	Text string
	Log  string
	Code comm.Code
	Err  error
}

// Error returns the text and the log.
func (e *Error) Error() string {
	s := "nvrtc: " + e.Text
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	if e.Log != "" {
		s += "\n" + e.Log
	}
	return s
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Is reports whether target is the error's class.
func (e *Error) Is(target error) bool { return target == error(e.Code) }

// Init opens libnvrtc, once a process. The error is comm.Unavailable and lists every path that was tried. Other functions
// call it by themselves.
func Init() error {
	loaded.once.Do(func() {
		if err := load(); err != nil {
			loaded.err = &Error{Text: "the compiler of kernels is not available", Code: comm.Unavailable, Err: err}
		}
	})
	return loaded.err
}

func load() error {
	lib, err := dl.Open(dl.Spec{
		Name:    "libnvrtc",
		Sonames: []string{"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"},
		Env:     nvrtcLib,
		Wheels:  true,

		Companions: []string{"libnvrtc-builtins.so.*"},
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
	if loaded.version, err = version(); err != nil {
		return err
	}
	info, err := os.Stat(lib.Path())
	if err != nil {
		return err
	}
	loaded.build = fmt.Sprintf("%s, %d bytes", loaded.version, info.Size())
	return nil
}

// Library describes the libnvrtc in use.
type Library struct {
	Path    string       `json:"path"`
	Version string       `json:"version"`
	Tried   []dl.Attempt `json:"tried"`
	Archs   []int        `json:"archs,omitempty"` // 75, 80, ...: what it can compile for
}

// Loaded returns what Init found. Tried is filled in when it found nothing too.
func Loaded() (Library, error) {
	err := Init()
	l := Library{Version: loaded.version}
	l.Path, l.Tried = dl.Outcome(loaded.lib, err)
	if err == nil {
		l.Archs = archs()
	}
	return l, err
}

// Compile compiles p, without the cache. The error holds the compiler's log; its class is comm.Invalid for a source that
// does not compile.
func Compile(p Program) ([]byte, error) {
	if err := p.validate(); err != nil {
		return nil, &Error{Text: "compile", Code: comm.Invalid, Err: err}
	}
	if err := Init(); err != nil {
		return nil, err
	}
	image, log, code := compile(p, !strings.HasPrefix(p.Arch, "compute_"))
	if code == 0 && len(image) > 0 {
		return image, nil
	}
	e := &Error{Text: fmt.Sprintf("%s for %s with NVRTC %s: %s", p.Name, p.Arch, loaded.version, errorText(code)), Log: strings.TrimSpace(log)}
	switch code {
	case compilation, invalidInput, invalidProgram:
		e.Code = comm.Invalid
	case invalidOption: // often an architecture that this NVRTC does not know
		e.Code = comm.Unavailable
		if e.Log == "" {
			e.Log = fmt.Sprintf("options: %s; it compiles for %v", strings.Join(p.options(), " "), archs())
		}
	}
	return nil, e
}

// Results of NVRTC.
const (
	invalidInput   = 3
	invalidProgram = 4
	invalidOption  = 5
	compilation    = 6
)
