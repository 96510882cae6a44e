package simd

import "golang.org/x/sys/cpu"

// detect returns the best level of the processor. The x/sys flags include the operating system's consent to save the
// wide registers.
func detect() Level {
	x := &cpu.X86
	switch {
	case !x.HasAVX2 || !x.HasFMA || !x.HasF16C:
		return Go
	case x.HasAVX512F && x.HasAVX512DQ && x.HasAVX512BW && x.HasAVX512VL:
		return AVX512
	}
	return AVX2
}
