package standin

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Library is what to build.
type Library struct {
	File   string   // its name, such as libcuda.so.1
	Source string   // the C file, below the module's folder; it may include others of its folder and of CUDA's
	Flags  []string // for gcc, such as -DOLD
	Beside []string // Files built before it, in the same call, that it calls
}

// CUDA is package cuda's libcuda: two devices, whose memory is the host's or files; kernels do nothing. Its source says how
// variables change it.
var CUDA = Library{File: "libcuda.so.1", Source: "cuda/testdata/libcuda.c"}

// With returns the library with further flags.
func (l Library) With(flags ...string) Library {
	l.Flags = append(slices.Clone(l.Flags), flags...)
	return l
}

// Build returns a folder that holds the libraries, for reading alone. It compiles them once for all tests of the user, or, where there
// is no cache folder, for this one. The test skips without gcc, off Linux, and without weft's sources.
func Build(t testing.TB, libs ...Library) string {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("stand-ins of libraries are for Linux")
	}
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("this test compiles a library: no gcc")
	}
	root := module(t)
	id, err := identity(gcc, root, libs)
	require.NoError(t, err)
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = t.TempDir()
	}
	cache = filepath.Join(cache, "weft", "standin")
	dir := filepath.Join(cache, id)
	if _, err := os.Stat(dir); err == nil {
		return dir
	}
	require.NoError(t, os.MkdirAll(cache, 0o755))
	temp, err := os.MkdirTemp(cache, ".building-*")
	require.NoError(t, err)
	for _, l := range libs {
		if err := l.compile(gcc, root, temp); err != nil {
			require.NoError(t, errors.Join(err, os.RemoveAll(temp)))
		}
	}
	// The folder appears whole or not at all; another process may have been faster.
	if err := os.Rename(temp, dir); err != nil {
		require.NoError(t, os.RemoveAll(temp))
		require.DirExists(t, dir, err.Error())
	}
	return dir
}

// compile makes one library in dir. It finds those beside it there.
func (l Library) compile(gcc, root, dir string) error {
	args := []string{"-shared", "-fPIC", "-O1", "-Wall", "-ffp-contract=off", "-Wl,-soname," + l.File, "-o", filepath.Join(dir, l.File)}
	args = append(append(args, l.Flags...), filepath.Join(root, l.Source))
	if len(l.Beside) > 0 {
		args = append(args, "-L"+dir, "-Wl,-rpath,$ORIGIN")
	}
	for _, file := range l.Beside {
		args = append(args, "-l:"+file)
	}
	args = append(args, "-lpthread", "-lm")
	if out, err := exec.Command(gcc, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("gcc %v: %w\n%s", args, err, out)
	}
	return nil
}

// module returns the folder of CUDA's source's module: the one that the test runs in, or one above it.
func module(t testing.TB) string {
	dir, err := os.Getwd()
	require.NoError(t, err)
	for {
		if _, err := os.Stat(filepath.Join(dir, CUDA.Source)); err == nil {
			return dir
		}
		up := filepath.Dir(dir)
		if up == dir {
			t.Skip("this test needs weft's source folder, above the one it runs in")
		}
		dir = up
	}
}

// identity names what would be made: by the compiler, the flags and every C file in the folders of the sources.
func identity(gcc, root string, libs []Library) (string, error) {
	version, err := exec.Command(gcc, "--version").Output()
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	fmt.Fprintf(sum, "%s%q", version, libs)
	folders := []string{filepath.Dir(CUDA.Source)}
	for _, l := range libs {
		if dir := filepath.Dir(l.Source); !slices.Contains(folders, dir) {
			folders = append(folders, dir)
		}
	}
	for _, dir := range folders {
		files, err := filepath.Glob(filepath.Join(root, dir, "*.[ch]"))
		if err != nil {
			return "", err
		}
		for _, file := range files {
			b, err := os.ReadFile(file)
			if err != nil {
				return "", err
			}
			fmt.Fprintf(sum, "%s %d\n%s", filepath.Base(file), len(b), b)
		}
	}
	return hex.EncodeToString(sum.Sum(nil)[:8]), nil
}

// insideEnv marks the child process of Rerun.
const insideEnv = "WEFT_TEST_RERUN"

// Inside reports whether this process was started by Rerun.
func Inside() bool { return os.Getenv(insideEnv) != "" }

// Rerun runs the test again, alone, in a child process with further variables, where a GPU is not required. In the child it returns true
// at once. In the parent it returns false when the child has ended, with what it printed; the test has failed when the child has.
func Rerun(t *testing.T, env ...string) (inside bool, output string) {
	t.Helper()
	if Inside() {
		return true, ""
	}
	args := []string{"-test.v", "-test.run", "^" + strings.ReplaceAll(t.Name(), "/", "$/^") + "$", "-test.timeout", "300s"}
	if testing.Short() {
		args = append(args, "-test.short")
	}
	c := exec.Command(os.Args[0], args...)
	c.Env = append(append(os.Environ(), insideEnv+"=1", "WEFT_REQUIRE_GPU=0"), env...)
	out, err := c.CombinedOutput()
	require.NoError(t, err, string(out))
	return false, string(out)
}
