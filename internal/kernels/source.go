package kernels

import (
	_ "embed"
	"strings"

	"github.com/weftgo/weft/internal/nvrtc"
)

//go:embed protocol.cuh
var protocol string

//go:embed numbers.cuh
var numbers string

//go:embed copy.cu
var copySource string

//go:embed reduce.cu
var reduceSource string

//go:embed small.cu
var smallSource string

// Program is the collectives' source for an architecture, such as sm_90a.
func Program(arch string) nvrtc.Program {
	return nvrtc.Program{
		Name:   "collectives.cu",
		Source: strings.Join([]string{protocol, numbers, copySource, reduceSource, smallSource}, "\n"),
		// Sums must not be contracted: they are written as __fadd_rn, and this keeps the compiler from any other idea.
		Options: []string{"--fmad=false", "-lineinfo"},
		Arch:    arch,
	}
}
