// Package dtype names the element types that weft moves and adds, and converts them on the host.
//
// Element types are run-time values ([DType]) because a buffer on a GPU is an address, not a Go slice. Go code that
// views host memory uses the named integer types ([BFloat16], [Float16], [E4M3], [E5M2]) so that the compiler tells a
// bfloat16 from an integer of the same width.
//
//	type   bytes  layout (sign.exponent.mantissa)   largest finite
//	F32    4      1.8.23                            3.40e38
//	BF16   2      1.8.7                             3.39e38
//	F16    2      1.5.10                            65504
//	F8E4M3 1      1.4.3, no infinity (OCP "fn")     448
//	F8E5M2 1      1.5.2                             57344
//	I8 U8  1
//	I32    4
//	I64    8
//
// All narrowing conversions round to nearest, ties to even. NaN stays NaN. The fp8 conversions saturate: a finite value
// beyond the largest finite one becomes that one, as does an infinity in E4M3, which has none.
package dtype
