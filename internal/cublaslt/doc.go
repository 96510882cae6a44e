// Package cublaslt multiplies matrices with libcublasLt, which is opened when it is first needed (WEFT_CUBLASLT_LIB, the
// loader's path, the toolkit, Python wheels).
//
//	D[M, N] = alpha · A[M, K] · B + beta · D      B is [N, K] (weights: one row an output) or [K, N]
//
// All matrices are row-major with a row stride. Sums are fp32 for every type. A [Handle] belongs to one rank and owns its
// workspace; it asks the library's heuristic once for each shape and each power of two of M, so that a decode step with one
// row more than the last asks nothing; an M that the bucket's algorithm refuses gets one of its own. The first run of an algorithm loads code, which waits for running kernels: call
// [Handle.Warm] for every bucket before ranks wait for each other.
package cublaslt
