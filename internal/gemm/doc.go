// Package gemm multiplies activations by packed weights: C[m, n] (+)= A[m, k] · Bᵀ, all float32.
//
// B is a weight [n, k] as a linear layer stores it. [Pack] rearranges it once into panels of 16 output columns, so that
// the kernel streams it:
//
//	weight [n, k]                 panels [ceil(n/16)][k][16]
//	row 0  ────────────k          panel 0: k rows of columns 0..15
//	row 1  ────────────           panel 1: k rows of columns 16..31, zeros past n
//	  ...
//
// # Bits
//
// Each element of C is one chain of fused multiply-adds over k in ascending order,
//
//	c = fma(a[k-1], b[k-1], ... fma(a[1], b[1], fma(a[0], b[0], c0)))
//
// from c0 = +0, or from the old C when accumulating. Nothing else enters: a row's result depends on that row and on B
// alone, and has the same bits for every m, tile shape, gathering, number of goroutines and blocking of k (blocks store
// and reload C, which is exact), on AVX2 and AVX-512. The pure-Go kernel, for other processors, has the same order but rounds
// each product before it adds; its bits differ from the assembly's and agree among themselves.
//
// # Shape of the kernel
//
// A tile of C stays in registers for the whole chain: 6 rows x 16 columns with AVX2, 8 rows x 32 columns with AVX-512
// (two adjacent panels). Tiles of one to three rows take up to four panels, because a short chain would wait for its own
// latency. Rows of A are read in place through row pointers, so a gather of rows costs nothing extra.
package gemm

//go:generate go -C ../tools run ./asm -kind gemm -out ../gemm/kernels_amd64.s -stubs ../gemm/kernels_amd64.go -pkg gemm
