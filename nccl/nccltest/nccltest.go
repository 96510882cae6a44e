package nccltest

import (
	"testing"

	"github.com/weftgo/weft/internal/standin"
)

// Run starts the test again in a child process that opens the stand-ins, with env as further variables and flags for the compiler
// of libnccl, such as -DVERSION=21801. In the child it returns true at once. In the parent it returns false when the child has
// ended, with what it printed; the test has failed when the child failed. It skips where Build does.
func Run(t *testing.T, env []string, flags ...string) (inside bool, output string) {
	t.Helper()
	if standin.Inside() {
		return true, ""
	}
	return standin.Rerun(t, append(Env(Build(t, flags...)), env...)...)
}

// Env returns the variables, as NAME=value, with which a process opens the stand-ins of a folder.
func Env(dir string) []string { return []string{"WEFT_CUDA_LIB=" + dir, "WEFT_NCCL_LIB=" + dir} }

// Build returns a folder with libcuda.so.1 and libnccl.so.2, compiled once for all tests of the user; flags are gcc's for libnccl.
// The test skips without gcc, off Linux, and without weft's sources.
func Build(t testing.TB, flags ...string) string {
	t.Helper()
	const sources = "nccl/nccltest/testdata/"
	return standin.Build(t, standin.Library{File: "libcuda.so.1", Source: sources + "libcuda.c"},
		standin.Library{File: "libnccl.so.2", Source: sources + "libnccl.c", Flags: flags, Beside: []string{"libcuda.so.1"}})
}
