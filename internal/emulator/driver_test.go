package emulator

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// driverChecks returns what runs a check of testdata/driver.cpp in a process of its own.
func driverChecks(t *testing.T) func(name string) (string, error) {
	t.Setenv("TMPDIR", t.TempDir())
	l := built(t)
	dir := t.TempDir()
	program, module := filepath.Join(dir, "driver"), filepath.Join(dir, "module.so")
	for _, args := range [][]string{
		{"-shared", "-fPIC", "-o", module, "testdata/module.cpp"},
		{"-o", program, "testdata/driver.cpp", l.CUDA, "-lpthread"},
	} {
		out, err := exec.Command("g++", append([]string{"-std=c++17", "-Wall", "-Werror"}, args...)...).CombinedOutput()
		require.NoError(t, err, string(out))
	}
	return func(name string) (string, error) {
		cmd := exec.Command(program, module, name)
		cmd.Env = append(os.Environ(), "WEFT_EMULATOR_SMS=4", "WEFT_EMULATOR_GPUS=2")
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
}

// TestDriver checks what libcuda's stand-in promises: resident blocks, handles, memory, streams, captures and graphs.
func TestDriver(t *testing.T) {
	run := driverChecks(t)
	for _, name := range []string{"residency", "handles", "globals", "order", "waits", "mapping", "branches", "refused", "captures", "updates"} {
		out, err := run(name)
		require.NoError(t, err, "%s: %s", name, out)
		require.Equal(t, "done\n", out, name)
	}
}

// TestDriverFaults touches memory that is not there. The process ends by a fault, or by a line that says what was overwritten.
func TestDriverFaults(t *testing.T) {
	run := driverChecks(t)
	for _, name := range []string{"past_end", "before_start", "after_free", "no_access"} {
		out, err := run(name)
		require.ErrorContains(t, err, "segmentation fault", "%s: %s", name, out)
		require.Empty(t, out, name)
	}
	out, err := run("past_end_by_little")
	require.Error(t, err)
	require.Contains(t, out, "of 260 bytes: something wrote 260 bytes from its start")
}
