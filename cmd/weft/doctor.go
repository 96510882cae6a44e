package main

import (
	"errors"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"strings"

	_ "github.com/weftgo/weft" // all drivers and exchanges, whose variables the report lists
	"github.com/weftgo/weft/cuda"
	"github.com/weftgo/weft/internal/cublaslt"
	"github.com/weftgo/weft/internal/dl"
	"github.com/weftgo/weft/internal/envknob"
	"github.com/weftgo/weft/internal/nvrtc"
	"github.com/weftgo/weft/internal/simd"
	"github.com/weftgo/weft/nccl"
	"github.com/weftgo/weft/nvshmem"
	"github.com/weftgo/weft/topo"
)

// doctorCommand is weft doctor.
type doctorCommand struct {
	JSON    bool `help:"Print everything as JSON."`
	Verbose bool `short:"v" help:"Print every path that was tried for libraries that were found, too."`
}

// Run executes the command. It only looks: it makes no context on a GPU, and creates nothing there.
func (d *doctorCommand) Run(w io.Writer) error {
	r := examine()
	if d.JSON {
		return printJSON(w, r)
	}
	return r.print(w, d.Verbose)
}

// report is what the doctor found.
type report struct {
	Program   program       `json:"program"`
	CPU       processor     `json:"cpu"`
	Libraries []library     `json:"libraries"`
	CUDA      string        `json:"cuda"` // the newest version that the driver speaks
	Archs     []int         `json:"nvrtc_archs"`
	GPUs      []cuda.Info   `json:"gpus"`
	Peers     [][]bool      `json:"peers"` // [from][to]: kernels of one can address the other's memory
	Topology  *topo.Machine `json:"topology"`
	Env       []variable    `json:"env"`
	Abilities []ability     `json:"abilities"`
}

type program struct {
	Version string `json:"version"`
	Go      string `json:"go"`
	OS      string `json:"os"`
	Arch    string `json:"arch"`
}

type processor struct {
	Cores   int    `json:"cores"`
	Kernels string `json:"kernels"` // which of weft's vector kernels run, and why
}

// library is one shared library.
type library struct {
	Name    string       `json:"name"`
	For     string       `json:"for"`
	Path    string       `json:"path"`
	Version string       `json:"version"`
	Error   string       `json:"error"`
	Tried   []dl.Attempt `json:"tried"`
}

// variable is an environment variable.
type variable struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	Doc   string `json:"doc"`
}

// ability is something that weft can or cannot do here.
type ability struct {
	What  string `json:"what"`
	Works bool   `json:"works"`
	Why   string `json:"why"`
}

func examine() *report {
	r := &report{
		Program: program{Version: version(), Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH},
		CPU:     processor{Cores: runtime.NumCPU(), Kernels: simd.Describe()},
	}
	driver, err := cuda.Loaded()
	r.CUDA = driver.Version
	r.add("libcuda", "the GPU driver", driver.Path, driver.Version, err, driver.Tried)
	compiler, err := nvrtc.Loaded()
	r.Archs = compiler.Archs
	r.add("libnvrtc", "compiling kernels", compiler.Path, compiler.Version, err, compiler.Tried)
	blas, err := cublaslt.Loaded()
	r.add("libcublasLt", "matrix products", blas.Path, blas.Version, err, blas.Tried)
	machine, err := topo.Read()
	r.add("libnvidia-ml", "links and topology", machine.Path, machine.NVML, err, machine.Tried)
	if err == nil {
		r.Topology = &machine
	}
	collectives, err := nccl.Loaded()
	r.add("libnccl", "collectives between processes", collectives.Path, collectives.Version, err, collectives.Tried)
	symmetric, err := nvshmem.Loaded()
	r.add("libnvshmem_host", "symmetric memory between processes", symmetric.Path, symmetric.Version, err, symmetric.Tried)
	r.devices()
	r.environment()
	r.Abilities = r.judge()
	return r
}

func version() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		return info.Main.Version
	}
	return "unknown"
}

// add notes a library. Of an error it keeps the first line, since the paths are in Tried, and which variable names the file.
func (r *report) add(name, use, path, version string, err error, tried []dl.Attempt) {
	l := library{Name: name, For: use, Path: path, Version: version, Tried: tried}
	if err != nil {
		l.Error, _, _ = strings.Cut(err.Error(), "\n")
	}
	if none := (*dl.NotFoundError)(nil); errors.As(err, &none) {
		if none.Spec.Name != name { // what this library needs is absent, and has a line of its own
			l.Tried = nil
		} else {
			l.Tried = none.Tried
			if knob := none.Spec.Env.Name; knob != "" {
				l.Error += "; set " + knob + " to the file or its folder"
			}
		}
	}
	r.Libraries = append(r.Libraries, l)
}

func (r *report) devices() {
	var err error
	if r.GPUs, err = cuda.Devices(); err != nil {
		return // the library's line says why
	}
	r.Peers = make([][]bool, len(r.GPUs))
	for a := range r.GPUs {
		r.Peers[a] = make([]bool, len(r.GPUs))
		for b := range r.GPUs {
			can, err := cuda.CanAccess(a, b)
			r.Peers[a][b] = a == b || err == nil && can
		}
	}
}

// foreign are variables of other libraries that change what weft sees or does.
var foreign = []variable{
	{Name: "CUDA_VISIBLE_DEVICES", Doc: "which GPUs the driver shows, and in which order"},
	{Name: "CUDA_DEVICE_ORDER", Doc: "PCI_BUS_ID numbers GPUs as nvidia-smi does"},
	{Name: "CUDA_MODULE_LOADING", Doc: "weft sets EAGER: code that is loaded late waits for kernels that wait for it"},
	{Name: "CUDA_DEVICE_MAX_CONNECTIONS", Doc: "weft sets 32: streams that share a hardware queue wait for each other"},
	{Name: "CUDA_LAUNCH_BLOCKING", Doc: "1 makes kernels that wait for other ranks hang"},
	{Name: "CUDA_HOME", Doc: "a CUDA toolkit"},
	{Name: "NCCL_NVLS_ENABLE", Doc: "0 turns NVLink multicast off in NCCL"},
	{Name: "NVSHMEM_DISABLE_NVLS", Doc: "1 turns NVLink multicast off in NVSHMEM"},
}

func (r *report) environment() {
	for _, k := range envknob.All() {
		doc := k.Doc
		if k.Values != nil {
			doc += " (" + strings.TrimPrefix(strings.Join(k.Values, ", "), ", ") + ")" // one may be empty
		}
		value := os.Getenv(k.Name)
		if k.Name == "WEFT_TOKEN" && value != "" {
			value = "(a secret)" // reports are shown to others
		}
		r.Env = append(r.Env, variable{k.Name, value, doc})
	}
	for _, v := range foreign {
		v.Value = os.Getenv(v.Name)
		r.Env = append(r.Env, v)
	}
}
