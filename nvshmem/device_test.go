package nvshmem

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/internal/gputest"
	"github.com/weftgo/weft/internal/nvrtc"
)

// wheels skips where the libraries are not here, and fails where they should be.
func wheels(t *testing.T) {
	gputest.Library(t, nvrtc.Init())
	if err := initLinker(); err != nil {
		gputest.Library(t, &Error{Text: "a linker", Code: comm.Unavailable, Err: err})
	}
}

// hostLibrary finds libnvshmem_host without opening it: it needs a driver.
func hostLibrary(t *testing.T) string {
	roots := filepath.SplitList(os.Getenv("WEFT_WHEELS"))
	if v := os.Getenv("WEFT_NVSHMEM_LIB"); v != "" {
		roots = append(roots, filepath.Join(v, "..", "..", ".."))
	}
	for _, root := range roots {
		path := filepath.Join(root, "nvidia", "nvshmem", "lib", "libnvshmem_host.so.3")
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	gputest.Skip(t, "this test needs the Python wheel nvidia-nvshmem-cu13, below WEFT_WHEELS")
	return ""
}

// TestLink compiles a kernel that puts with a signal and links it with the device library; no GPU is needed.
func TestLink(t *testing.T) {
	wheels(t)
	host := hostLibrary(t)
	if _, err := findToolchain(host); err != nil {
		gputest.Skip(t, err.Error())
	}
	image, err := link(host, Version{3, 4, 5}, "sm_90", PutKernel)
	require.NoError(t, err)
	for _, want := range []string{"put_signal", "nvshmemi_device_state_d", "nvshmemi_device_lib_version_d"} {
		require.Contains(t, string(image), want)
	}
	_, err = link(host, Version{3, 4, 5}, "sm_90", "extern \"C\" __global__ void k() { nvshmem_no_such_call(); }\n")
	require.ErrorIs(t, err, comm.Invalid)
	require.ErrorContains(t, err, "nvshmem_no_such_call")
	_, err = link(host, Version{3, 4, 5}, "sm_90", "extern __device__ void nowhere(); extern \"C\" __global__ void k() { nowhere(); }\n")
	require.ErrorIs(t, err, comm.Unavailable)
	require.ErrorContains(t, err, "nowhere")
}

// TestToolchainMissing says what is not there.
func TestToolchainMissing(t *testing.T) {
	t.Setenv("WEFT_CUDA_INCLUDE", "/nonexistent/a:/nonexistent/b")
	t.Setenv("CUDA_HOME", "")
	_, err := findToolchain(filepath.Join(t.TempDir(), "lib", "libnvshmem_host.so.3"))
	require.ErrorContains(t, err, "the device library: ")
	require.ErrorContains(t, err, "the header nvshmem.h in any of /nonexistent/a, /nonexistent/a/cccl, /nonexistent/b")
}

// TestMappedLibraries reads what the kernel says of a process.
func TestMappedLibraries(t *testing.T) {
	maps := strings.Join([]string{
		"7f00-7f01 r-xp 00000000 08:01 11 /opt/a/libnvshmem_host.so.3",
		"7f01-7f02 r--p 00001000 08:01 11 /opt/a/libnvshmem_host.so.3",
		"7f02-7f03 rw-p 00000000 00:00 0",
		"7f03-7f04 r-xp 00000000 08:01 12 /home/some one/lib/libnvshmem_host.so.3.4.5",
		"7f04-7f05 r-xp 00000000 08:01 13 /opt/libnvshmem_host.so.3/other.so",
		"",
	}, "\n")
	require.Equal(t, []string{"/opt/a/libnvshmem_host.so.3", "/home/some one/lib/libnvshmem_host.so.3.4.5"}, mappedLibraries(maps))
}
