// Package kernels is the device code of weft's collectives: CUDA C++ sources, compiled by NVRTC for the GPU that is there,
// and typed launchers. Twins in Go of everything that computes are in [Reduce]; the collectives' twin is package
// comm/local.
//
//	protocol.cuh  how ranks meet: entries, flags with epochs, deadlines, records of errors
//	numbers.cuh   element types, rounding, reductions
//	copy.cu       what moves bytes: gathers, all-to-all, broadcast, messages
//	reduce.cu     what adds them up
//
// The structs of args.go are protocol.cuh's, byte for byte; a test compares their sizes with what the compiler says.
package kernels
