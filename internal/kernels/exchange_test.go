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

var exchangeKernels = []string{"weft_dispatch", "weft_dispatch_few", "weft_combine", "weft_combine_experts", "weft_index_count", "weft_index_place", "weft_quantise", "weft_partials", "weft_bias", "weft_expand", "weft_gather", "weft_add",
	"weft_low_dispatch", "weft_low_combine"}

// TestCompileExchange compiles dispatch and combine for every architecture that the source allows.
func TestCompileExchange(t *testing.T) {
	needNVRTC(t)
	archs := []string{"sm_90a"}
	if os.Getenv("WEFT_ALL_ARCHS") != "" {
		archs = append(archs, "sm_80", "sm_100a")
	}
	for _, arch := range archs {
		image, err := nvrtc.Cubin(ExchangeProgram(arch))
		require.NoError(t, err)
		for _, name := range exchangeKernels {
			require.Contains(t, string(image), name, arch)
		}
	}
}

// TestLayoutExchange lets the compiler compare its structs with those of dispatch.go.
func TestLayoutExchange(t *testing.T) {
	needNVRTC(t)
	p := ExchangeProgram("sm_90a")
	var b strings.Builder
	b.WriteString(strings.ReplaceAll(p.Source, `extern "C" __global__`, "__global__ static")) // kernels that nobody calls cost nothing
	for name, n := range map[string]uintptr{
		"Experts": unsafe.Sizeof(Experts{}), "Exchange": unsafe.Sizeof(Exchange{}), "Bank": unsafe.Sizeof(Bank{}),
		"DispatchArgs": unsafe.Sizeof(DispatchArgs{}), "CombineArgs": unsafe.Sizeof(CombineArgs{}), "IndexArgs": unsafe.Sizeof(IndexArgs{}),
		"QuantArgs": unsafe.Sizeof(QuantArgs{}), "PartialArgs": unsafe.Sizeof(PartialArgs{}), "BiasArgs": unsafe.Sizeof(BiasArgs{}),
		"ExpandArgs": unsafe.Sizeof(ExpandArgs{}), "GatherArgs": unsafe.Sizeof(GatherArgs{}), "AddArgs": unsafe.Sizeof(AddArgs{}), "Term": TermBytes, "Sent": SentBytes,
		"Low": unsafe.Sizeof(Low{}), "LowDispatchArgs": unsafe.Sizeof(LowDispatchArgs{}), "LowCombineArgs": unsafe.Sizeof(LowCombineArgs{}), "Line": LineBytes,
		"LowBank": uintptr(LowStateBytes(1) - LowStateBytes(0)),
	} {
		fmt.Fprintf(&b, "static_assert(sizeof(%s) == %d, \"%s\");\n", name, n, name)
	}
	fmt.Fprintf(&b, "static_assert(sizeof(LowBank) == 8 * LOW_WORDS && REFUSALS == %d, \"words\");\n", lowRefusals)
	p.Source = b.String() + "extern \"C\" __global__ void nothing() {}\n"
	_, err := nvrtc.Compile(p)
	require.NoError(t, err)
}
