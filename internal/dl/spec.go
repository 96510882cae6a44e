package dl

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/weftgo/weft/internal/envknob"
)

// Symbol is one row of a binding's table.
type Symbol struct {
	Name     string // as exported, with its version suffix: cuMemAlloc_v2
	Optional bool   // the binding works without it
	Since    string // the first version that has it, for the error text; empty when all have it
}

// Spec says which library is wanted and where it may be.
type Spec struct {
	Name    string       // for people: libcuda
	Sonames []string     // file names, best first
	Env     envknob.Knob // the override variable
	Dirs    []string     // further folders, tried after the toolkit's
	Wheels  bool         // look in Python wheels too

	// Companions are patterns of files that the library opens by bare name later, though its own folder is not searched
	// then. Those beside it are opened with it, so that the loader knows their names.
	Companions []string
}

// Attempt is one path that was tried.
type Attempt struct {
	Path string `json:"path"`
	Why  string `json:"why"` // the loader's own words; empty for the one that was opened
}

// Library is an open library. Its methods may be called at any time from any goroutine.
type Library struct {
	spec   Spec
	path   string
	tried  []Attempt
	handle uintptr
}

// Path returns the file that the loader chose.
func (l *Library) Path() string { return l.path }

// Name returns the Spec's name.
func (l *Library) Name() string { return l.spec.Name }

// Tried returns every path that was tried, the opened one last.
func (l *Library) Tried() []Attempt { return l.tried }

// NotFoundError says that no file could be opened, and why each could not.
type NotFoundError struct {
	Spec  Spec
	Tried []Attempt
}

// Error lists every path with the loader's reason.
func (e *NotFoundError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s not found; tried %d paths", e.Spec.Name, len(e.Tried))
	for _, a := range e.Tried {
		fmt.Fprintf(&b, "\n  %s: %s", a.Path, a.Why)
	}
	if e.Spec.Env.Name != "" {
		fmt.Fprintf(&b, "\nset %s to the file or its folder", e.Spec.Env.Name)
	}
	return b.String()
}

// MissingError says that a library lacks a symbol.
type MissingError struct {
	Library, Path string
	Missing       []Symbol
}

// Error names the symbols and the version that has them.
func (e *MissingError) Error() string {
	var names []string
	for _, s := range e.Missing {
		if s.Since != "" {
			names = append(names, fmt.Sprintf("%s (since %s)", s.Name, s.Since))
		} else {
			names = append(names, s.Name)
		}
	}
	return fmt.Sprintf("%s (%s) is too old or another library: it lacks %s", e.Library, e.Path, strings.Join(names, ", "))
}

// Bind looks up every row and returns the addresses in the order of rows, 0 for an optional symbol that is not there. It
// fails when a required one is missing.
func (l *Library) Bind(rows []Symbol) ([]uintptr, error) {
	addrs := make([]uintptr, len(rows))
	var missing []Symbol
	for i, row := range rows {
		addrs[i] = l.Lookup(row.Name)
		if addrs[i] == 0 && !row.Optional {
			missing = append(missing, row)
		}
	}
	if missing != nil {
		return nil, &MissingError{Library: l.spec.Name, Path: l.path, Missing: missing}
	}
	return addrs, nil
}

// Outcome returns what a binding tells of its library: the file and every path that was tried. lib is nil and err the reason where none
// was opened.
func Outcome(lib *Library, err error) (path string, tried []Attempt) {
	if e := (*NotFoundError)(nil); errors.As(err, &e) {
		return "", e.Tried
	}
	if lib == nil {
		return "", nil
	}
	return lib.path, lib.tried
}

// Open opens the first file that loads. The error is a [*NotFoundError].
func Open(spec Spec) (*Library, error) {
	var tried []Attempt
	seen := map[string]bool{}
	try := func(path string) *Library {
		if seen[path] {
			return nil
		}
		seen[path] = true
		handle, real, err := open(path)
		if err != nil {
			tried = append(tried, Attempt{path, strings.TrimPrefix(err.Error(), path+": ")})
			return nil
		}
		tried = append(tried, Attempt{Path: path})
		for _, pattern := range spec.Companions {
			beside, _ := filepath.Glob(filepath.Join(filepath.Dir(real), pattern))
			for _, file := range beside {
				_, _, _ = open(file) // one that is needed and does not load is the library's own error later
			}
		}
		return &Library{spec: spec, path: real, tried: tried, handle: handle}
	}
	override, err := spec.override()
	if err != nil {
		return nil, &NotFoundError{spec, []Attempt{{spec.Env.Name, err.Error()}}}
	}
	if override != nil {
		for _, path := range override {
			if l := try(path); l != nil {
				return l, nil
			}
		}
		return nil, &NotFoundError{spec, tried}
	}
	for _, name := range spec.Sonames {
		if l := try(name); l != nil {
			return l, nil
		}
	}
	for _, dirs := range []func() []string{func() []string { return append(toolkitDirs(), spec.Dirs...) }, spec.wheelDirs} {
		for _, dir := range dirs() {
			for _, path := range spec.files(dir) {
				if l := try(path); l != nil {
					return l, nil
				}
			}
		}
	}
	if spec.Wheels && len(spec.wheelDirs()) == 0 {
		tried = append(tried, Attempt{"nvidia/*/lib in the site-packages of $WEFT_WHEELS, $VIRTUAL_ENV, $CONDA_PREFIX and python3", "no such folder"})
	}
	return nil, &NotFoundError{spec, tried}
}

// files returns the paths of the sonames in dir that exist; a folder without any is one path, so that the error shows it.
func (s Spec) files(dir string) []string {
	var out []string
	for _, name := range s.Sonames {
		if path := filepath.Join(dir, name); exists(path) {
			out = append(out, path)
		}
	}
	if out == nil {
		out = []string{filepath.Join(dir, s.Sonames[0])}
	}
	return out
}
