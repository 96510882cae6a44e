//go:build linux && cgo

package dl

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/internal/envknob"
)

var override = envknob.Register("WEFT_DL_TEST_LIB", "for these tests")

// library compiles a shared library with the named functions.
func library(t *testing.T, path string, functions ...string) {
	t.Helper()
	cc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("this test compiles a library: no gcc")
	}
	source := filepath.Join(t.TempDir(), "lib.c")
	var text strings.Builder
	for _, f := range functions {
		text.WriteString("int " + f + "(void) { return 7; }\n")
	}
	require.NoError(t, os.WriteFile(source, []byte(text.String()), 0o644))
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	out, err := exec.Command(cc, "-shared", "-fPIC", "-Wl,-soname,"+filepath.Base(path), "-o", path, source).CombinedOutput()
	require.NoError(t, err, string(out))
}

// clean empties the variables that Open looks at.
func clean(t *testing.T) {
	t.Helper()
	for _, name := range []string{"CUDA_HOME", "CUDA_PATH", "VIRTUAL_ENV", "CONDA_PREFIX", Wheels.Name, override.Name} {
		t.Setenv(name, "")
	}
	t.Setenv("PATH", "/nowhere")
}

// runs counts those of tests that load libraries.
var runs int

// Each place is found when the library is only there, and the places before it are in the list of what was tried.
func TestSearch(t *testing.T) {
	runs++
	for place, put := range map[string]func(t *testing.T, name string) (path string){
		"file": func(t *testing.T, name string) string {
			p := filepath.Join(t.TempDir(), name)
			t.Setenv(override.Name, p)
			return p
		},
		"folder": func(t *testing.T, name string) string {
			d := t.TempDir()
			t.Setenv(override.Name, d)
			return filepath.Join(d, name)
		},
		"home": func(t *testing.T, name string) string {
			d := t.TempDir()
			t.Setenv("CUDA_HOME", d)
			return filepath.Join(d, "lib64", name)
		},
		"path": func(t *testing.T, name string) string {
			d := t.TempDir()
			t.Setenv("CUDA_PATH", d)
			return filepath.Join(d, "lib", name)
		},
		"targets": func(t *testing.T, name string) string {
			d := t.TempDir()
			t.Setenv("CUDA_PATH", d)
			return filepath.Join(d, "targets/any/lib", name)
		},
		"wheels": func(t *testing.T, name string) string {
			d := t.TempDir()
			t.Setenv(Wheels.Name, "/nowhere:"+d)
			return filepath.Join(d, "nvidia/cu13/lib", name)
		},
		"venv": func(t *testing.T, name string) string {
			d := t.TempDir()
			t.Setenv("VIRTUAL_ENV", d)
			return filepath.Join(d, "lib/python3.12/site-packages/nvidia/cuda_nvrtc/lib", name)
		},
		"conda": func(t *testing.T, name string) string {
			d := t.TempDir()
			t.Setenv("CONDA_PREFIX", d)
			return filepath.Join(d, "lib", name)
		},
	} {
		t.Run(place, func(t *testing.T) {
			saved := os.Getenv("PATH")
			clean(t)
			name := fmt.Sprintf("libweft_%s%d.so.1", place, runs) // a library stays loaded, under its name
			path := put(t, name)
			t.Setenv("PATH", saved)
			library(t, path, "one")
			t.Setenv("PATH", "/nowhere")
			l, err := Open(Spec{Name: "lib", Sonames: []string{"libweft_absent.so.2", name}, Env: override, Wheels: true})
			require.NoError(t, err)
			require.Equal(t, path, l.Path())
			tried := l.Tried()
			require.Equal(t, Attempt{Path: path}, tried[len(tried)-1])
			if place != "file" && place != "folder" {
				require.Equal(t, name, tried[1].Path)
				require.Contains(t, tried[1].Why, "cannot open shared object file")
			}
			require.NotZero(t, l.Lookup("one"))
			require.Zero(t, l.Lookup("two"))
		})
	}
}

func TestBind(t *testing.T) {
	path := filepath.Join(t.TempDir(), "libweft_bind.so")
	library(t, path, "one", "two")
	clean(t)
	t.Setenv(override.Name, path)
	l, err := Open(Spec{Name: "libbind", Sonames: []string{"libweft_bind.so"}, Env: override})
	require.NoError(t, err)
	addrs, err := l.Bind([]Symbol{{Name: "two"}, {Name: "three", Optional: true, Since: "3.0"}, {Name: "one"}})
	require.NoError(t, err)
	require.NotZero(t, addrs[0])
	require.Zero(t, addrs[1])
	require.NotZero(t, addrs[2])
	_, err = l.Bind([]Symbol{{Name: "one"}, {Name: "three", Since: "3.0"}, {Name: "four"}})
	var missing *MissingError
	require.ErrorAs(t, err, &missing)
	require.EqualError(t, err, "libbind ("+path+") is too old or another library: it lacks three (since 3.0), four")
}

func TestNotFound(t *testing.T) {
	clean(t)
	t.Setenv("CUDA_HOME", "/nowhere/cuda")
	spec := Spec{Name: "libx", Sonames: []string{"libweft_x.so.2", "libweft_x.so"}, Env: override, Dirs: []string{"/nowhere/more"}, Wheels: true}
	_, err := Open(spec)
	var none *NotFoundError
	require.ErrorAs(t, err, &none)
	var paths []string
	for _, a := range none.Tried {
		paths = append(paths, a.Path)
		require.NotEmpty(t, a.Why, a.Path)
	}
	at := -1
	for _, want := range []string{"libweft_x.so.2", "libweft_x.so", "/nowhere/cuda/lib64/libweft_x.so.2", "/usr/local/cuda/lib64/libweft_x.so.2", "/nowhere/more/libweft_x.so.2"} {
		i := slices.Index(paths, want) // a toolkit that is here adds folders of its own in between
		require.Greater(t, i, at, "%s in %v", want, paths)
		at = i
	}
	require.ErrorContains(t, err, "libx not found; tried")
	require.ErrorContains(t, err, "set WEFT_DL_TEST_LIB to the file or its folder")

	// A file that is no library is an error with the loader's words, and nothing else is tried.
	text := filepath.Join(t.TempDir(), "text.so")
	require.NoError(t, os.WriteFile(text, []byte("not a library"), 0o644))
	t.Setenv(override.Name, text)
	_, err = Open(spec)
	require.ErrorAs(t, err, &none)
	require.Len(t, none.Tried, 1)
	require.Contains(t, none.Tried[0].Why, "file too short")

	path, tried := Outcome(nil, fmt.Errorf("a binding: %w", err))
	require.Empty(t, path)
	require.Equal(t, none.Tried, tried)
	path, tried = Outcome(&Library{path: "/lib/x", tried: []Attempt{{Path: "x"}}}, errors.New("it is too old"))
	require.Equal(t, "/lib/x", path)
	require.Len(t, tried, 1)
	_, tried = Outcome(nil, errors.New("no cgo"))
	require.Nil(t, tried)
}

// A companion is known by its bare name afterwards, though its folder is not in the loader's path.
func TestCompanions(t *testing.T) {
	runs++
	dir, second := t.TempDir(), fmt.Sprintf("libweft_second%d.so.3", runs)
	library(t, filepath.Join(dir, "libweft_main.so"), "one")
	library(t, filepath.Join(dir, second), "two")
	clean(t)
	t.Setenv(override.Name, dir)
	spec := Spec{Name: "main", Sonames: []string{"libweft_main.so"}, Env: override}
	_, err := Open(spec)
	require.NoError(t, err)
	_, _, err = open(second)
	require.Error(t, err)
	spec.Companions = []string{strings.TrimSuffix(second, "3") + "*"}
	_, err = Open(spec)
	require.NoError(t, err)
	_, _, err = open(second)
	require.NoError(t, err)
}

// A python3 that hangs or fails costs seconds, not for ever.
func TestPythonPath(t *testing.T) {
	dir := t.TempDir()
	fake := filepath.Join(dir, "python3")
	require.NoError(t, os.WriteFile(fake, []byte("#!/bin/sh\necho /opt/x/site-packages\n"), 0o755))
	require.Equal(t, []string{"/opt/x/site-packages"}, pythonPath(fake))
	broken := filepath.Join(dir, "broken")
	require.NoError(t, os.WriteFile(broken, []byte("#!/bin/sh\nexit 3\n"), 0o755))
	require.Empty(t, pythonPath(broken))
}
