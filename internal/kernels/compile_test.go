package kernels

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/internal/nvrtc"
)

// needNVRTC skips without the compiler.
func needNVRTC(t testing.TB) {
	if err := nvrtc.Init(); err != nil {
		if os.Getenv("WEFT_REQUIRE_GPU") != "" {
			t.Fatal(err)
		}
		t.Skip("needs NVRTC (the Python wheel nvidia-cuda-nvrtc will do): ", strings.SplitN(err.Error(), "\n", 2)[0])
	}
}

// TestCompile compiles every kernel for every architecture that the source allows. It costs half a minute for each that is
// not in the cache.
func TestCompile(t *testing.T) {
	needNVRTC(t)
	archs := []string{"sm_90a"}
	if os.Getenv("WEFT_ALL_ARCHS") != "" {
		archs = append(archs, "sm_80", "sm_100a")
	}
	for _, arch := range archs {
		image, err := nvrtc.Cubin(Program(arch))
		require.NoError(t, err)
		for _, name := range []string{"weft_barrier", "weft_copy", "weft_reduce", "weft_reduce_any", "weft_send", "weft_recv", "weft_leave", "weft_memory", "weft_small"} {
			require.Contains(t, string(image), name, arch)
		}
	}
}

// TestLayout lets the compiler compare its structs with those of args.go.
func TestLayout(t *testing.T) {
	needNVRTC(t)
	var b strings.Builder
	size := func(name string, n uintptr) {
		fmt.Fprintf(&b, "static_assert(sizeof(%s) == %d, \"%s\");\n", name, n, name)
	}
	var c Ctl
	var a Args
	var e Entry
	require.EqualValues(t, numLines*8, unsafe.Sizeof(e))
	size("Part", unsafe.Sizeof(Part{}))
	size("Entry", unsafe.Sizeof(e))
	size("Record", unsafe.Sizeof(Record{}))
	size("Rank", unsafe.Sizeof(Rank{}))
	size("Ctl", unsafe.Sizeof(c))
	size("Args", unsafe.Sizeof(a))
	size("MemoryArgs", unsafe.Sizeof(MemoryArgs{}))
	require.Zero(t, unsafe.Offsetof(c.Inbox)%16)
	require.Zero(t, unsafe.Offsetof(c.Done)%128)
	p := Program("sm_90a")
	p.Source = text("ptx.cuh") + text("protocol.cuh") + "\n" + b.String() + "extern \"C\" __global__ void nothing() {}\n"
	_, err := nvrtc.Compile(p)
	require.NoError(t, err)
}
