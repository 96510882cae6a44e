// Package kernels is the device code of weft's collectives: CUDA C++ sources, compiled by NVRTC for the GPU that is there,
// and typed launchers. Their twin in Go is package comm/local, with the same bits.
//
//	protocol.cuh  how ranks meet, and the structs they meet with
//	meeting.cuh   lines and flags with epochs, deadlines, records of errors
//	numbers.cuh   element types, rounding, reductions
//	copy.cuh      copies of rows
//	gather.cuh    all-gathers and broadcast
//	chunks.cuh    large calls: chunks that blocks take by tickets
//	bulk.cuh      chunks moved by bulk copies through shared memory
//	exchange.cu   all-to-all, and the kernel for all that moves bytes
//	messages.cu   barrier, send, recv, leaving
//	reduce.cu     what adds up
//	small.cu      a small all-reduce in one trip
//
// The structs of args.go are protocol.cuh's, byte for byte; a test compares their sizes with what the compiler says.
package kernels
