// Package simd has the vector operations of a transformer on []float32: adds and sums for the collectives, softmax, SwiGLU,
// RMSNorm and rotary embedding for the model, conversions of 16-bit formats.
//
// Each operation exists three times, and the level is chosen once, at start (see [Current]):
//
//	WEFT_SIMD=avx512   AVX-512 F, DQ, BW, VL   16 lanes
//	WEFT_SIMD=avx2     AVX2, FMA, F16C          8 lanes
//	WEFT_SIMD=go       any processor            the twin that the tests compare with
//
// # Bits
//
// All levels give the same bits (NaN comparing as NaN). Products are rounded before they are added, never fused; the
// sums of a reduction are kept in a fixed number of partial sums, value i in sum i mod 32 (mod 16 in [SoftmaxExp]), folded
// 16, 8, 4, 2 and 1 apart:
//
//	p[0..31] -> p[j]+p[j+16] -> p[j]+p[j+8] -> p[j]+p[j+4] -> p[j]+p[j+2] -> p[0]+p[1]
//
// So the result for an element, or for a row, depends on its values alone, not on alignment or on the processor.
//
// # Memory
//
// An operation covers len(dst) values (len of its first argument if it has no dst); other slices must be at least as
// long. dst may be the same slice as an input, element for element; other overlap is not allowed. Nothing is allocated.
// Under the race detector the operands of the assembly are reported by package race.
package simd

//go:generate go -C ../tools run ./asm -kind simd -out ../simd/kernels_amd64.s -stubs ../simd/kernels_amd64.go -pkg simd
