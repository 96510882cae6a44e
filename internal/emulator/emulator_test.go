package emulator

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// built returns the libraries in the user's cache folder, or skips where there can be none.
func built(t *testing.T) Libraries {
	l, err := Build("")
	if errors.Is(err, ErrUnavailable) {
		t.Skip(err)
	}
	require.NoError(t, err)
	return l
}

// checks returns a program that runs the kernels of testdata/checks.cu, compiled to look for races or not.
func checks(t *testing.T, races string) func(seed string, kernel ...string) (string, error) {
	t.Setenv("TMPDIR", t.TempDir())
	t.Setenv("WEFT_EMULATOR_RACES", races)
	l := built(t)
	dir := t.TempDir()
	program, module := filepath.Join(dir, "run"), filepath.Join(dir, "checks.so")
	out, err := exec.Command("g++", "-std=c++17", "-Wall", "-Werror", "-o", program, "testdata/run.cpp", "-ldl", "-lpthread").CombinedOutput()
	require.NoError(t, err, string(out))
	out, err = exec.Command(program, "compile", l.NVRTC, "testdata/checks.cu", module).CombinedOutput()
	require.NoError(t, err, string(out))
	return func(seed string, kernel ...string) (string, error) {
		cmd := exec.Command(program, append([]string{module}, kernel...)...)
		cmd.Env = append(os.Environ(), "WEFT_EMULATOR_SEED="+seed)
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		err := cmd.Run()
		return out.String(), err
	}
}

// TestEngine runs kernels that check barriers, warp operations, atomics, flags, bulk copies and numbers, in order and in random ones.
func TestEngine(t *testing.T) {
	run := checks(t, "")
	for _, seed := range []string{"", "1", "2", "3"} {
		out, err := run(seed)
		require.NoError(t, err, "seed %q: %s", seed, out)
		require.Contains(t, out, "places: 2 parameters, 0 bytes shared, 224 threads\n")
		require.Contains(t, out, "ring: 2 parameters, 48 bytes shared, 1024 threads\n")
	}
}

// TestFaults runs kernels that would hang or fault on a GPU. Each ends its process with a line that says what and where.
func TestFaults(t *testing.T) {
	run := checks(t, "")
	for kernel, want := range map[string]string{
		"bad_barrier": "threads 0 to 76: barrier 0\n  threads 77 to 77: barrier 5\n  threads 78 to 223: barrier 0\n",
		"bad_mask":    "thread 1: a warp operation whose mask leaves out its caller (0x1, 0x2)",
		"bad_lanes":   "thread 16: lanes of a warp are in different operations",
		"bad_load":    "thread 0: a misaligned load",
		"bad_count":   "thread 64: threads give a barrier different counts (0x60, 0x80)",
		"bad_copy":    "thread 0: a bulk copy of misaligned memory",
		"bad_vector":  "testdata/checks.cu line 284: a misaligned access of",
		"bad_shift":   "testdata/checks.cu line 285: a shift by the width or more",
		"bad_index":   "testdata/checks.cu line 288: an index outside of its array",
		"bad_early":   "a thread ends before its bulk stores are written",
	} {
		seed := ""
		if kernel == "bad_early" { // without a seed, copies are done at once
			seed = "1"
		}
		out, err := run(seed, kernel)
		require.Error(t, err, kernel)
		require.Contains(t, out, want, kernel)
	}
}

// TestRaces finds accesses that nothing orders, and none where barriers, fences and flags order them.
func TestRaces(t *testing.T) {
	run := checks(t, "1")
	for _, seed := range []string{"", "1"} {
		out, err := run(seed)
		require.NoError(t, err, "seed %q: %s", seed, out)
	}
	for kernel, want := range map[string]string{
		"bad_shared": "a race at .*: nothing orders\n  first bad_shared block 0 thread .*: a .* of 4 bytes, .*\n  then bad_shared block 0 thread",
		"bad_flag":   "first bad_flag block 0 thread 0: a write of 8 bytes, .*\n  then bad_flag block 1 thread 0: a read of 8 bytes",
		"bad_late":   "bad_late block . thread 3: a write of 8 bytes, .*(\n.*)?bad_late block . thread 0: a read",
	} {
		out, err := run("", kernel)
		require.Error(t, err, kernel)
		require.Regexp(t, want, out, kernel)
	}
}

// TestFolders: a compilation leaves nothing in the folder of temporary files, and removes what others left more than a day ago.
func TestFolders(t *testing.T) {
	programs := filepath.Join(filepath.Dir(built(t).NVRTC), "programs")
	old, recent := filepath.Join(programs, "test-old"), filepath.Join(programs, "test-recent")
	for dir, age := range map[string]time.Duration{old: 25 * time.Hour, recent: 23 * time.Hour} {
		require.NoError(t, os.MkdirAll(dir, 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "module.so"), nil, 0o600))
		then := time.Now().Add(-age)
		require.NoError(t, os.Chtimes(dir, then, then))
	}
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(recent)) })
	checks(t, "")
	require.NoDirExists(t, old)
	require.DirExists(t, recent)
	left, err := os.ReadDir(os.Getenv("TMPDIR"))
	require.NoError(t, err)
	require.Empty(t, left)
}

// TestBuild builds in a new folder from several goroutines at once, and finds what is there.
func TestBuild(t *testing.T) {
	built(t)
	if testing.Short() {
		t.Skip("two builds take half a minute of a core")
	}
	dir := t.TempDir()
	var wg sync.WaitGroup
	var libraries [2]Libraries
	var errs [2]error
	for i := range libraries {
		wg.Go(func() { libraries[i], errs[i] = Build(dir) })
	}
	wg.Wait()
	require.NoError(t, errors.Join(errs[:]...))
	require.Equal(t, libraries[0], libraries[1])
	again, err := Build(dir)
	require.NoError(t, err)
	require.Equal(t, libraries[0], again)
	require.FileExists(t, again.CUDA)
	require.FileExists(t, again.NVRTC)
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 1, "nothing is left of the slower one")
}

func TestUnavailable(t *testing.T) {
	t.Setenv("CXX", "/nowhere/c++")
	_, err := Build(t.TempDir())
	require.ErrorIs(t, err, ErrUnavailable)
	require.ErrorContains(t, err, "/nowhere/c++")
}
