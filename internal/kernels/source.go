package kernels

import (
	"embed"
	"strings"

	"github.com/weftgo/weft/internal/envknob"
	"github.com/weftgo/weft/internal/nvrtc"
)

// files are the parts of one translation unit, in the order in which they use each other.
var files = []string{"ptx.cuh", "protocol.cuh", "meeting.cuh", "numbers.cuh", "copy.cuh", "gather.cuh", "chunks.cuh", "bulk.cuh", "exchange.cu", "messages.cu",
	"reduce.cu", "small.cu"}

//go:embed *.cuh *.cu
var sources embed.FS

// text returns a source file, which the binary carries.
func text(name string) string {
	b, err := sources.ReadFile(name)
	if err != nil {
		panic(err) // it is embedded
	}
	return string(b)
}

// delays compiles kernels that spin a random time before stores of data and flags.
var delays = envknob.Register("WEFT_KERNEL_DELAYS", "1: kernels spin a random time before stores of data and flags, to look for races", "0", "1")

func delayed() bool {
	v, _ := delays.Get()
	return v == "1"
}

// more are options for measurements, such as -DDRAIN=0: variants of kernels can be timed in one run.
var more = envknob.Register("WEFT_KERNEL_OPTIONS", "more options for the compiler of kernels, separated by spaces, for measurements")

// Program is the collectives' source for an architecture, such as sm_90a.
func Program(arch string) nvrtc.Program {
	var b strings.Builder
	for _, name := range files {
		b.WriteString(text(name) + "\n")
	}
	// Sums must not be contracted: they are written as __fadd_rn, and this keeps the compiler from any other idea.
	options := []string{"--fmad=false", "-lineinfo"}
	if delayed() {
		options = append(options, "-DWEFT_DELAYS")
	}
	extra, _ := more.Get()
	options = append(options, strings.Fields(extra)...)
	source := b.String()
	if ganged() {
		source = gangSource(source)
	}
	return nvrtc.Program{
		Name:    "collectives.cu",
		Source:  source,
		Options: options,
		Arch:    arch,
	}
}
