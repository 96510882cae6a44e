package nvshmem

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/cuda"
	"github.com/weftgo/weft/internal/dl"
	"github.com/weftgo/weft/internal/envknob"
	"github.com/weftgo/weft/internal/nvrtc"
)

var (
	includeDirs = envknob.Register("WEFT_CUDA_INCLUDE", "folders (separated by :) with CUDA's headers, for kernels that call NVSHMEM; the default is the toolkit's and the Python wheels'")
	jitLinkLib  = envknob.Register("WEFT_NVJITLINK_LIB", "libnvJitLink, which links kernels with libnvshmem_device: its file or its folder")
)

// prelude comes before the source of a kernel. NVRTC has no C++ library: NVSHMEM's headers find theirs in cuda::std. Its uint64_t
// is another type than the one that libnvshmem_device was compiled with, and would give functions other names.
const prelude = `#include <cuda/std/climits>
#include <cuda/std/cstddef>
#include <cuda/std/cstdint>
#include <cuda/std/limits>
#include <cuda/std/type_traits>
#include <cuda_fp16.h>
#include <cuda_bf16.h>
namespace std { using namespace cuda::std; }
typedef unsigned long weft_u64;
#define uint64_t weft_u64
#include <nvshmem.h>
#include <nvshmemx.h>
#line 1
`

var linker struct {
	once sync.Once
	err  error
}

func initLinker() error {
	linker.once.Do(func() {
		lib, err := dl.Open(dl.Spec{Name: "libnvJitLink", Sonames: []string{"libnvJitLink.so.13", "libnvJitLink.so.12", "libnvJitLink.so"}, Env: jitLinkLib, Wheels: true})
		if err == nil {
			var addrs []uintptr
			if addrs, err = lib.Bind(LinkSymbols()); err == nil {
				bindLinker(addrs)
			}
		}
		linker.err = err
	})
	return linker.err
}

// toolchain is what kernels that call NVSHMEM are made with.
type toolchain struct {
	archive  string   // libnvshmem_device.a
	includes []string // folders of headers
}

// findToolchain looks for the device library beside the host library, and for the headers. The error lists all that is missing.
func findToolchain(hostLibrary string) (toolchain, error) {
	var t toolchain
	var missing []error
	dir := filepath.Dir(hostLibrary)
	t.archive = filepath.Join(dir, "libnvshmem_device.a")
	if _, err := os.Stat(t.archive); err != nil {
		missing = append(missing, fmt.Errorf("the device library: %w", err))
	}
	folders := candidates(dir)
	for _, header := range []string{"nvshmem.h", "cuda_runtime.h", "cuda_bf16.h", "cuda/std/cstdint"} {
		found := ""
		for _, f := range folders {
			if _, err := os.Stat(filepath.Join(f, header)); err == nil {
				found = f
				break
			}
		}
		if found == "" {
			missing = append(missing, fmt.Errorf("the header %s in any of %s; set %s", header, strings.Join(folders, ", "), includeDirs.Name))
		} else {
			t.includes = append(t.includes, found)
		}
	}
	return t, errors.Join(missing...)
}

// candidates lists where headers may be, given the folder of the host library.
func candidates(dir string) []string {
	given, _ := includeDirs.Get()
	roots := filepath.SplitList(given)
	roots = append(roots, filepath.Join(dir, "..", "include"))
	for _, env := range []string{"CUDA_HOME", "CUDA_PATH"} {
		if v := os.Getenv(env); v != "" {
			roots = append(roots, filepath.Join(v, "include"))
		}
	}
	roots = append(roots, "/usr/local/cuda/include", filepath.Join(dir, "..", "..", "cu13", "include"), filepath.Join(dir, "..", "..", "cuda_runtime", "include"))
	for _, root := range filepath.SplitList(os.Getenv(dl.Wheels.Name)) {
		roots = append(roots, filepath.Join(root, "nvidia", "cu13", "include"))
	}
	var folders []string
	for _, r := range roots {
		folders = append(folders, filepath.Clean(r), filepath.Join(r, "cccl"))
	}
	return folders
}

// link compiles a kernel for an architecture and links it with the device library.
func link(hostLibrary string, v Version, arch, source string) ([]byte, error) {
	unavailable := func(what string, err error) error {
		return &Error{Text: "device-initiated operations need " + what, Code: comm.Unavailable, Err: err}
	}
	tools, err := findToolchain(hostLibrary)
	if err != nil {
		return nil, unavailable("files that are not here", err)
	}
	if err := initLinker(); err != nil {
		return nil, unavailable("a linker", err)
	}
	p := nvrtc.Program{Name: "nvshmem_kernel.cu", Source: prelude + source, Arch: arch,
		Options: []string{"-rdc=true", "-default-device", fmt.Sprintf("-DWEFT_NVSHMEM_VERSION=%d%02d%02d", v.Major, v.Minor, v.Patch)}}
	for _, dir := range tools.includes {
		p.Options = append(p.Options, "-I"+dir)
	}
	object, err := nvrtc.Cubin(p)
	if err != nil {
		return nil, err
	}
	image, log, code := jitLink(arch, object, tools.archive)
	if code != 0 {
		return nil, errorf(comm.Unavailable, "linking with %s for %s: code %d: %s", tools.archive, arch, code, strings.TrimSpace(log))
	}
	return image, nil
}

// Module is code that calls NVSHMEM, loaded on the PE's device.
type Module struct {
	*cuda.Module
	pe *PE
}

// Load compiles CUDA C++ that calls NVSHMEM's device functions, which are declared before its first line, links it with
// libnvshmem_device and makes it known to the library. Kernels are functions declared extern "C" __global__. It takes some
// seconds the first time. Errors are Unavailable when something that this needs is not here, and say what; a source that does
// not compile is Invalid. The caller calls Close.
func (p *PE) Load(source string) (*Module, error) {
	if !has("nvshmemx_cumodule_init") || !has("nvshmemx_cumodule_finalize") {
		return nil, errorf(comm.Unavailable, "NVSHMEM %v has no nvshmemx_cumodule_init", loaded.version)
	}
	i := p.dev.Info()
	image, err := link(loaded.lib.Path(), loaded.version, fmt.Sprintf("sm_%d%d", i.Major, i.Minor), source)
	if err != nil {
		return nil, err
	}
	m, err := p.dev.LoadModule(image)
	if err != nil {
		return nil, err
	}
	if err := p.call("cumodule_init", callModuleInit, uint64(m.Handle())); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return &Module{m, p}, nil
}

// Close unloads the code. None of its kernels may be running.
func (m *Module) Close() error {
	return errors.Join(m.pe.call("cumodule_finalize", callModuleFinalize, uint64(m.Handle())), m.Module.Close())
}
