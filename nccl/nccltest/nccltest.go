package nccltest

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// insideEnv marks the child process of Run.
const insideEnv = "WEFT_TEST_FAKE_NCCL"

// Inside reports whether this process runs over the stand-ins.
func Inside() bool { return os.Getenv(insideEnv) != "" }

// Run starts the test again in a child process that opens the stand-ins, with env as further variables and flags for the compiler
// of libnccl, such as -DVERSION=21801. In the child it returns true at once. In the parent it returns false when the child has
// ended, with what it printed; the test has failed when the child failed. It skips where Build does.
func Run(t *testing.T, env []string, flags ...string) (inside bool, output string) {
	t.Helper()
	if Inside() {
		return true, ""
	}
	dir := Build(t, flags...)
	args := []string{"-test.run", "^" + strings.ReplaceAll(t.Name(), "/", "$/^") + "$", "-test.timeout", "120s"}
	if testing.Short() {
		args = append(args, "-test.short")
	}
	if testing.Verbose() {
		args = append(args, "-test.v")
	}
	c := exec.Command(os.Args[0], args...)
	c.Env = append(append(os.Environ(), Env(dir)...), env...)
	out, err := c.CombinedOutput()
	require.NoError(t, err, string(out))
	t.Log(string(out))
	return false, string(out)
}

// Env returns the variables, as NAME=value, with which a process opens the stand-ins of a folder. A GPU is then not required.
func Env(dir string) []string {
	return []string{insideEnv + "=1", "WEFT_CUDA_LIB=" + dir, "WEFT_NCCL_LIB=" + dir, "WEFT_REQUIRE_GPU=0"}
}

// Build returns a folder with libcuda.so.1 and libnccl.so.2. It compiles them once for all processes of the user, or, where there is no
// cache folder, for the test; flags are gcc's for libnccl. The test skips without gcc, off Linux, and without weft's sources.
func Build(t testing.TB, flags ...string) string {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("the stand-in of libnccl is for Linux")
	}
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("this test compiles a library: no gcc")
	}
	root := module(t)
	id, err := identity(gcc, root, flags)
	require.NoError(t, err)
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = t.TempDir()
	}
	cache = filepath.Join(cache, "weft", "nccltest")
	dir := filepath.Join(cache, id)
	if _, err := os.Stat(dir); err == nil {
		return dir
	}
	require.NoError(t, os.MkdirAll(cache, 0o755))
	temp, err := os.MkdirTemp(cache, ".building-*")
	require.NoError(t, err)
	if err := compile(gcc, filepath.Join(root, sources), temp, flags); err != nil {
		require.NoError(t, errors.Join(err, os.RemoveAll(temp)))
	}
	// The folder appears whole or not at all; another process may have been faster.
	if err := os.Rename(temp, dir); err != nil {
		require.NoError(t, os.RemoveAll(temp))
		require.DirExists(t, dir, err.Error())
	}
	return dir
}

// sources is the folder of the stand-ins in the module.
const sources = "nccl/nccltest/testdata"

// below is the libcuda that the stand-in's libcuda includes.
const below = "cuda/testdata/libcuda.c"

// module returns the folder of go.mod above the one that the test runs in.
func module(t testing.TB) string {
	dir, err := os.Getwd()
	require.NoError(t, err)
	for {
		if _, err := os.Stat(filepath.Join(dir, sources)); err == nil {
			return dir
		}
		up := filepath.Dir(dir)
		if up == dir {
			t.Skip("this test needs weft's source folder, above the one it runs in")
		}
		dir = up
	}
}

// identity names what would be made: by its sources, the compiler and its flags.
func identity(gcc, root string, flags []string) (string, error) {
	version, err := exec.Command(gcc, "--version").Output()
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	fmt.Fprintf(sum, "%s%q", version, flags)
	files, err := filepath.Glob(filepath.Join(root, sources, "*"))
	if err != nil {
		return "", err
	}
	for _, file := range append(files, filepath.Join(root, below)) {
		b, err := os.ReadFile(file)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(sum, "%s %d\n%s", filepath.Base(file), len(b), b)
	}
	return hex.EncodeToString(sum.Sum(nil)[:8]), nil
}

// compile makes both libraries. libnccl finds libcuda beside it.
func compile(gcc, src, dir string, flags []string) error {
	for _, lib := range [][]string{
		{"-o", filepath.Join(dir, "libcuda.so.1"), "-Wl,-soname,libcuda.so.1", filepath.Join(src, "libcuda.c"), "-lpthread"},
		append(append([]string{}, flags...), "-o", filepath.Join(dir, "libnccl.so.2"), "-Wl,-soname,libnccl.so.2",
			filepath.Join(src, "libnccl.c"), "-L"+dir, "-l:libcuda.so.1", "-Wl,-rpath,$ORIGIN", "-lpthread", "-lm"),
	} {
		args := append([]string{"-shared", "-fPIC", "-O1", "-Wall", "-ffp-contract=off"}, lib...)
		if out, err := exec.Command(gcc, args...).CombinedOutput(); err != nil {
			return fmt.Errorf("gcc %v: %w\n%s", args, err, out)
		}
	}
	return nil
}
