package cuda

import (
	"fmt"
	"os"
	"sync"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/internal/dl"
	"github.com/weftgo/weft/internal/envknob"
)

var cudaLib = envknob.Register("WEFT_CUDA_LIB", "libcuda, the GPU driver's library: its file or its folder")

var loaded struct {
	once sync.Once
	lib  *dl.Library
	err  error
}

// unavailable is a failure to load: comm.Unavailable with the cause.
type unavailable struct{ err error }

func (e *unavailable) Error() string { return "cuda: " + e.err.Error() }
func (e *unavailable) Unwrap() error { return e.err }
func (e *unavailable) Is(target error) bool {
	return target == error(comm.Unavailable)
}

// Init opens libcuda and initialises it, once a process; later calls return the same result. Every other function calls it
// by itself. The error is comm.Unavailable and lists every path that was tried.
func Init() error {
	loaded.once.Do(func() {
		if err := load(); err != nil {
			loaded.err = &unavailable{err}
		}
	})
	return loaded.err
}

func load() error {
	lib, err := dl.Open(dl.Spec{
		Name:    "libcuda",
		Sonames: []string{"libcuda.so.1", "libcuda.so"},
		Env:     cudaLib,
		Dirs:    []string{"/usr/local/nvidia/lib64", "/usr/lib/wsl/lib", "/run/opengl-driver/lib"},
	})
	if err != nil {
		return err
	}
	loaded.lib = lib
	addrs, err := lib.Bind(symbols())
	if err != nil {
		return err
	}
	bindSymbols(addrs)
	for _, v := range [][2]string{{"CUDA_MODULE_LOADING", "EAGER"}, {"CUDA_DEVICE_MAX_CONNECTIONS", "32"}} {
		if os.Getenv(v[0]) == "" {
			if err := os.Setenv(v[0], v[1]); err != nil {
				return err
			}
		}
	}
	if c := cuInit(0); c != success {
		return fmt.Errorf("cuInit of %s: %w", lib.Path(), &Error{Call: "cuInit", Device: -1, Code: c})
	}
	return nil
}

// Library describes the libcuda in use.
type Library struct {
	Path    string       `json:"path"`
	Version string       `json:"version"` // the CUDA version that the driver speaks, such as 13.0
	Tried   []dl.Attempt `json:"tried"`
}

// Loaded returns what Init found. Tried is filled in when it found nothing too.
func Loaded() (Library, error) {
	err := Init()
	var l Library
	l.Path, l.Tried = dl.Outcome(loaded.lib, err)
	if err == nil {
		l.Version, err = Version()
	}
	return l, err
}

// Version returns the newest CUDA version that the driver speaks, such as "13.0".
func Version() (string, error) {
	if err := Init(); err != nil {
		return "", err
	}
	var v int32
	if c := cuDriverGetVersion(&v); c != success {
		return "", &Error{Call: "cuDriverGetVersion", Device: -1, Code: c}
	}
	return fmt.Sprintf("%d.%d", v/1000, v%1000/10), nil
}

// Symbols returns the rows that this package resolves in libcuda; none where it was built without cgo or not for Linux.
func Symbols() []dl.Symbol { return symbols() }

// Symbol returns the address of a libcuda function, for other bindings that make a context current in their own C calls.
func Symbol(name string) (uintptr, error) {
	if err := Init(); err != nil {
		return 0, err
	}
	if addr := loaded.lib.Lookup(name); addr != 0 {
		return addr, nil
	}
	return 0, &unavailable{fmt.Errorf("%s has no %s", loaded.lib.Path(), name)}
}
