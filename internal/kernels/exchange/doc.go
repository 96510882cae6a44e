// Package exchange is the host half of dispatch and combine: what both strategies (packages agrs and alltoall) do to
// rows, and the banks they keep them in. Its row loops are the twins that kernels on other devices are held to.
//
//	quantise, pack ──► (collective) ──► index, expand ──► experts ──► partial rows ──► (collective) ──► sum, bias, round
//	   Quantiser         strategy          Core.Receive                  Partials          strategy        Sums
//
// Every product of a weight and a value is rounded to fp32 before it is added: an explicit float32 conversion forbids
// the compiler to fuse the two, so that results are the same on every machine and device.
//
// A Core and everything it holds is used by one goroutine at a time; loops inside spread over idle cores.
package exchange
