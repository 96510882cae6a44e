//go:build linux && cgo

package nccl_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/comm/commtest"
	"github.com/weftgo/weft/nccl"
)

// fakeOutput is what the latest child printed.
var fakeOutput string

const fakeEnv = "WEFT_TEST_FAKE_NCCL"

// withFake runs a test of this binary in a child process whose libcuda and libnccl are those of testdata. The parent returns
// false. flags are for the compiler, such as -DVERSION=21801.
func withFake(t *testing.T, env []string, flags ...string) bool {
	t.Helper()
	if os.Getenv(fakeEnv) != "" {
		return true
	}
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("this test compiles a library: no gcc")
	}
	if _, err := os.Stat("../cuda/testdata/libcuda.c"); err != nil {
		t.Skip("this test needs its source folder: ", err)
	}
	dir := filepath.Join(fakes, strings.Join(append(flags, "lib"), "_"))
	if _, err := os.Stat(dir); err == nil {
		return runFake(t, dir, env)
	}
	require.NoError(t, os.Mkdir(dir, 0o755))
	for _, lib := range [][]string{
		{"-o", filepath.Join(dir, "libcuda.so.1"), "-Wl,-soname,libcuda.so.1", "testdata/libcuda.c", "-lpthread"},
		append(flags, "-o", filepath.Join(dir, "libnccl.so.2"), "-Wl,-soname,libnccl.so.2", "testdata/libnccl.c", "-L"+dir, "-l:libcuda.so.1",
			"-Wl,-rpath,"+dir, "-lpthread", "-lm"),
	} {
		out, err := exec.Command(gcc, append([]string{"-shared", "-fPIC", "-O1", "-Wall", "-ffp-contract=off"}, lib...)...).CombinedOutput()
		require.NoError(t, err, string(out))
	}
	return runFake(t, dir, env)
}

// runFake runs the test in a child process with the libraries of a folder.
func runFake(t *testing.T, dir string, env []string) bool {
	t.Helper()
	args := []string{"-test.run", "^" + t.Name() + "$", "-test.timeout", "120s"}
	if testing.Short() {
		args = append(args, "-test.short")
	}
	if testing.Verbose() {
		args = append(args, "-test.v")
	}
	c := exec.Command(os.Args[0], args...)
	c.Env = append(append(os.Environ(), fakeEnv+"=1", "WEFT_CUDA_LIB="+dir, "WEFT_NCCL_LIB="+dir, "WEFT_REQUIRE_GPU=0"), env...)
	out, err := c.CombinedOutput()
	require.NoError(t, err, string(out))
	t.Log(string(out))
	fakeOutput = string(out)
	return false
}

func openFake(t testing.TB, ranks int, timeout time.Duration, change func(*nccl.Config)) *comm.World {
	cfg := nccl.Config{Devices: gpus(ranks), Timeout: timeout}
	if change != nil {
		change(&cfg)
	}
	w, err := nccl.Open(t.Context(), cfg)
	require.NoError(t, err)
	return w
}

// The driver passes the suite over the stand-in, whose sums have comm/local's order.
func TestFakeDriver(t *testing.T) {
	if !withFake(t, nil) {
		return
	}
	commtest.TestDriver(t, func(t testing.TB, ranks int) *comm.World { return openFake(t, ranks, 0, nil) },
		commtest.Timeouts(func(t testing.TB, ranks int, timeout time.Duration) *comm.World {
			return openFake(t, ranks, timeout, nil)
		}),
		commtest.Sizes([]int{1, 2, 3, 8}, nil))
}

// Blocking communicators behave alike.
func TestFakeDriverBlocking(t *testing.T) {
	if testing.Short() {
		t.Skip("the suite a second time; not in short runs")
	}
	if !withFake(t, nil) {
		return
	}
	open := func(t testing.TB, ranks int, timeout time.Duration) *comm.World {
		return openFake(t, ranks, timeout, func(c *nccl.Config) { c.Options.Blocking = true })
	}
	commtest.TestDriver(t, func(t testing.TB, ranks int) *comm.World { return open(t, ranks, 0) }, commtest.Timeouts(open), commtest.Sizes([]int{4}, nil))
}

func TestFakeExample(t *testing.T) {
	if withFake(t, nil) {
		Example()
		return
	}
	require.Contains(t, fakeOutput, "[2 4 6]")
}
