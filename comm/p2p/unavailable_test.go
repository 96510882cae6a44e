//go:build linux && cgo

package p2p

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/cuda"
	"github.com/weftgo/weft/internal/standin"
)

// child runs a test of this binary again with other libraries. It reports true in the child.
func child(t *testing.T, env ...string) bool {
	t.Helper()
	start := time.Now()
	inside, out := standin.Rerun(t, env...)
	if inside {
		return true
	}
	for line := range strings.Lines(out) {
		if strings.Contains(line, "RESULT") {
			t.Logf("%s (%v in all)", strings.TrimSpace(line), time.Since(start).Round(time.Millisecond))
		}
	}
	return false
}

// refused opens a world that cannot be had and returns why.
func refused(t *testing.T, devices []comm.Device) error {
	start := time.Now()
	_, err := Open(t.Context(), Config{Devices: devices})
	require.ErrorIs(t, err, comm.Unavailable)
	require.Less(t, time.Since(start), 10*time.Second)
	t.Logf("RESULT %s", strings.ReplaceAll(err.Error(), "\n", "; "))
	return err
}

// TestNoLibrary opens a world without the driver's library: the error lists what was tried.
func TestNoLibrary(t *testing.T) {
	if !child(t, "WEFT_CUDA_LIB=/nonexistent/libcuda.so.1") {
		return
	}
	err := refused(t, oneGPU(2))
	require.ErrorContains(t, err, "/nonexistent/libcuda.so.1")
	require.ErrorContains(t, err, "libcuda")
}

// TestNoCompiler opens a world on a GPU without NVRTC and with an empty cache of kernels.
func TestNoCompiler(t *testing.T) {
	device(t)
	if !child(t, "WEFT_NVRTC_LIB=/nonexistent/libnvrtc.so.13", "WEFT_CACHE_DIR="+t.TempDir()) {
		return
	}
	d := device(t)
	alive := d.Alive()
	err := refused(t, oneGPU(2))
	require.ErrorContains(t, err, "/nonexistent/libnvrtc.so.13")
	require.ErrorContains(t, err, "libnvrtc")
	require.Equal(t, alive, d.Alive())
	require.False(t, d.Held())
}

// fakeDriver compiles package cuda's stand-in for libcuda, which shows two GPUs.
func fakeDriver(t *testing.T, flags ...string) string {
	t.Helper()
	return filepath.Join(standin.Build(t, standin.CUDA.With(flags...)), standin.CUDA.File)
}

// TestOldDriver opens a world on a driver that lacks a function.
func TestOldDriver(t *testing.T) {
	if !standin.Inside() {
		child(t, "WEFT_CUDA_LIB="+fakeDriver(t, "-DOLD"))
		return
	}
	require.ErrorContains(t, refused(t, oneGPU(2)), "it lacks cuGraphUpload (since 11.1)")
}

// TestNoPeerAccess opens a world on two GPUs that cannot address each other: the error names the pair, before anything is
// compiled or allocated.
func TestNoPeerAccess(t *testing.T) {
	if !standin.Inside() {
		child(t, "WEFT_CUDA_LIB="+fakeDriver(t))
		return
	}
	gpus := []comm.Device{{Kind: comm.CUDA, Index: 0}, {Kind: comm.CUDA, Index: 1}}
	require.ErrorContains(t, refused(t, gpus), "cuda:0 cannot address the memory of cuda:1")
	for i := range gpus {
		d, err := cuda.Open(i)
		require.NoError(t, err)
		require.Zero(t, d.Alive())
		require.False(t, d.Held())
		require.NoError(t, d.Close())
		require.ErrorContains(t, d.Close(), "closed more often than opened", "Open has closed its own")
	}
	_, err := Open(t.Context(), Config{Devices: []comm.Device{{Kind: comm.CUDA, Index: 2}}})
	require.ErrorIs(t, err, comm.Unavailable)
	require.ErrorContains(t, err, "the driver shows 2 devices")
	require.True(t, errors.Is(err, cuda.Code(101)))
}
