package nccl

import (
	"fmt"
	"sync"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/cuda"
	"github.com/weftgo/weft/internal/dl"
	"github.com/weftgo/weft/internal/envknob"
	"github.com/weftgo/weft/nccl/internal/calls"
)

var ncclLib = envknob.Register("WEFT_NCCL_LIB", "libnccl: its file or its folder")

// Minimum is the oldest version that this package works with.
const Minimum = 21801

// spec says where the library may be. Where two are installed the loader's comes first; WEFT_NCCL_LIB decides.
var spec = dl.Spec{Name: "libnccl", Sonames: []string{"libnccl.so.2", "libnccl.so"}, Env: ncclLib, Wheels: true}

var loaded struct {
	once    sync.Once
	lib     *dl.Library
	err     error
	version int
	have    []bool // by row
	rows    []dl.Symbol
}

// unavailable is a failure to load: comm.Unavailable with the cause.
type unavailable struct{ err error }

func (e *unavailable) Error() string        { return "nccl: " + e.err.Error() }
func (e *unavailable) Unwrap() error        { return e.err }
func (e *unavailable) Is(target error) bool { return target == error(comm.Unavailable) }

// Init opens libcuda and libnccl, once a process; later calls return the same result. Every other function calls it by
// itself. The error is comm.Unavailable and lists every path that was tried, or what an old library lacks.
func Init() error {
	loaded.once.Do(func() {
		if err := load(); err != nil {
			loaded.err = &unavailable{err}
		}
	})
	return loaded.err
}

func load() error {
	if err := cuda.Init(); err != nil {
		return err
	}
	var cu [4]uintptr
	for i, name := range []string{"cuCtxGetCurrent", "cuCtxSetCurrent", "cuMemcpy2DAsync_v2", "cuMemcpyAsync"} {
		addr, err := cuda.Symbol(name)
		if err != nil {
			return err
		}
		cu[i] = addr
	}
	lib, err := dl.Open(spec)
	if err != nil {
		return err
	}
	loaded.lib = lib
	rows := Symbols()
	addrs, err := lib.Bind(rows)
	if err != nil {
		return err
	}
	loaded.rows, loaded.have = rows, make([]bool, len(rows))
	for i, a := range addrs {
		loaded.have[i] = a != 0
	}
	calls.Bind(addrs)
	calls.BindCUDA(cu)
	var text [calls.TextBytes]byte
	a := [1]uint64{}
	if r := run(0, calls.GetVersion, a[:], &text); r != Success {
		return fmt.Errorf("ncclGetVersion of %s: %w", lib.Path(), r)
	}
	loaded.version = int(int32(a[0]))
	if loaded.version < Minimum {
		return fmt.Errorf("%s is version %s; weft needs %s or newer", lib.Path(), versionText(loaded.version), versionText(Minimum))
	}
	return nil
}

// Symbols returns the functions that this package resolves in libnccl, each with the version that first has it; none
// where it was built without cgo or not for Linux. Rows newer than Minimum are optional.
func Symbols() []dl.Symbol {
	rows := calls.Symbols()
	for i := range rows {
		rows[i].Optional = parseVersion(rows[i].Since) > Minimum
	}
	return rows
}

// Has reports whether the library has a function, such as "ncclCommShrink".
func Has(name string) bool {
	if Init() != nil {
		return false
	}
	for i, row := range loaded.rows {
		if row.Name == name {
			return loaded.have[i]
		}
	}
	return false
}

// parseVersion makes 22803 of "2.28.3".
func parseVersion(s string) int {
	var major, minor, patch int
	_, _ = fmt.Sscanf(s, "%d.%d.%d", &major, &minor, &patch)
	return major*10000 + minor*100 + patch
}

func versionText(v int) string { return fmt.Sprintf("%d.%d.%d", v/10000, v%10000/100, v%100) }

// Version returns the version of the library in use as one number, such as 22809 for 2.28.9; 0 without one.
func Version() int {
	if Init() != nil {
		return 0
	}
	return loaded.version
}

// Library describes the libnccl in use.
type Library struct {
	Path    string       `json:"path"`
	Version string       `json:"version"` // such as 2.28.9
	Tried   []dl.Attempt `json:"tried"`
}

// Loaded returns what Init found. Tried is filled in when it found nothing too.
func Loaded() (Library, error) {
	err := Init()
	var l Library
	l.Path, l.Tried = dl.Outcome(loaded.lib, err)
	if loaded.version != 0 {
		l.Version = versionText(loaded.version)
	}
	return l, err
}
