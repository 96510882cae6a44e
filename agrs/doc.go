// Package agrs exchanges by gathering everything: dispatch is one all_gatherv, combine is one reduce_scatterv.
//
//	rank 0: x0 ids0 w0 ┐              ┌ all rows, index of rank 0's experts ─► partial rows ┐                  ┌ out0
//	rank 1: x1 ids1 w1 ┼─ all_gatherv ┼ all rows, index of rank 1's experts ─► partial rows ┼─ reduce_scatterv ┼ out1
//	rank 2: x2 ids2 w2 ┘              └ all rows, index of rank 2's experts ─► partial rows ┘                  └ out2
//
// Every rank receives every token, so nothing overflows and nobody needs to know how many tokens go where: each rank gives
// its own count, and the counts travel with the rows. It is the right choice when most tokens go to most ranks anyway (many
// experts per token, few ranks), or when a batch is so small that the number of collectives counts more than bytes.
// Package alltoall sends less.
//
// In the layout Rows, Received.X holds all rows in (rank, token) order and the index lists those with an expert here. With
// PartialRows, rows without an expert here need not be written: Combine takes them as zeros.
//
// On a GPU the collectives are the driver's, with counts on the device, and two kernels index what was gathered; others make
// the partial rows and add a bias. Nothing waits on the host. With a bias Combine keeps sums in fp32, for which memory is
// taken at construction.
package agrs
