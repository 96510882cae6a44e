package nvshmem

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/cuda"
	"github.com/weftgo/weft/internal/dl"
	"github.com/weftgo/weft/internal/envknob"
)

var nvshmemLib = envknob.Register("WEFT_NVSHMEM_LIB", "libnvshmem_host: its file or its folder")

// Version is a library's version.
type Version struct{ Major, Minor, Patch int }

// String returns "3.4.5".
func (v Version) String() string { return fmt.Sprintf("%d.%d.%d", v.Major, v.Minor, v.Patch) }

// before reports whether v is older than major.minor.
func (v Version) before(major, minor int) bool {
	return v.Major < major || v.Major == major && v.Minor < minor
}

// minMajor is the first major version whose structs and calls are these.
const minMajor = 3

var loaded struct {
	once    sync.Once
	lib     *dl.Library
	version Version
	err     error
}

// Error is what this package returns.
type Error struct {
	Text string
	Code comm.Code
	Err  error
}

// Error returns the text and the cause.
func (e *Error) Error() string {
	if e.Err == nil {
		return "nvshmem: " + e.Text
	}
	return "nvshmem: " + e.Text + ": " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Is reports whether target is the error's class.
func (e *Error) Is(target error) bool { return target == error(e.Code) }

func errorf(code comm.Code, format string, args ...any) *Error {
	return &Error{Text: fmt.Sprintf(format, args...), Code: code}
}

// Init opens libnvshmem_host, once a process, and looks at its version; it does not initialise NVSHMEM. The error is
// comm.Unavailable and says what was looked for, what is too old, or what is there twice.
func Init() error {
	loaded.once.Do(func() {
		if err := load(); err != nil {
			loaded.err = &Error{Text: "the library is not available", Code: comm.Unavailable, Err: err}
		}
	})
	return loaded.err
}

func load() error {
	lib, err := dl.Open(dl.Spec{
		Name:    "libnvshmem_host",
		Sonames: []string{"libnvshmem_host.so.3"},
		Env:     nvshmemLib,
		Wheels:  true,
		// The library opens these by bare name.
		Companions: []string{"nvshmem_bootstrap_uid.so.*"},
	})
	if err != nil {
		return err
	}
	loaded.lib = lib
	addrs, err := lib.Bind(Symbols())
	if err != nil {
		return err
	}
	bindSymbols(addrs)
	loaded.version = libraryVersion()
	if loaded.version.before(minMajor, 0) {
		return fmt.Errorf("%s is version %v, weft needs %d.0", lib.Path(), loaded.version, minMajor)
	}
	if loaded.version.Major > minMajor {
		return fmt.Errorf("%s is version %v, whose structs weft does not know; it knows %d.x", lib.Path(), loaded.version, minMajor)
	}
	if twice := copies(); len(twice) > 1 {
		return fmt.Errorf("it is in this process %d times, and each copy has a state of its own: %s; set %s to the one that the others use",
			len(twice), strings.Join(twice, ", "), nvshmemLib.Name)
	}
	if status := initStatus(); status != 0 {
		return fmt.Errorf("another part of this process has initialised it already (status %d); weft must be the first", status)
	}
	addr, err := cuda.Symbol("cuCtxSetCurrent")
	if err != nil {
		return err
	}
	bindCurrent(addr)
	return nil
}

// copies lists the files of libnvshmem_host that are mapped into this process.
func copies() []string {
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return nil
	}
	return mappedLibraries(string(maps))
}

// mappedLibraries finds them in the text of /proc/self/maps.
func mappedLibraries(maps string) (paths []string) {
	for line := range strings.Lines(maps) {
		f := strings.Fields(line)
		if len(f) < 6 {
			continue
		}
		path := strings.Join(f[5:], " ")
		if strings.Contains(path[strings.LastIndexByte(path, '/')+1:], "libnvshmem_host.so") && !slices.Contains(paths, path) {
			paths = append(paths, path)
		}
	}
	return paths
}

// Library describes the library in use.
type Library struct {
	Path    string       `json:"path"`
	Version string       `json:"version"`
	Tried   []dl.Attempt `json:"tried"`
}

// Loaded returns what Init found.
func Loaded() (Library, error) {
	err := Init()
	var l Library
	l.Path, l.Tried = dl.Outcome(loaded.lib, err)
	if loaded.lib != nil {
		l.Version = loaded.version.String()
	}
	return l, err
}
