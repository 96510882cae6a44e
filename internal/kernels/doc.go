// Package kernels is the device code of weft's collectives: CUDA C++ sources, compiled by NVRTC for the GPU that is there,
// and typed launchers. Their twin in Go is package comm/local, with the same bits.
//
//	protocol.cuh  how ranks meet: entries, flags with epochs, deadlines, records of errors
//	numbers.cuh   element types, rounding, reductions
//	copy.cu       what moves bytes: gathers, all-to-all, broadcast, messages
//	reduce.cu     what adds them up
//	small.cu      a small all-reduce in one trip
//
// The structs of args.go are protocol.cuh's, byte for byte; a test compares their sizes with what the compiler says.
package kernels
