// Package nccltest is a stand-in of libnccl for tests on machines without a GPU, with a libcuda below it: package
// internal/standin makes both from the sources in testdata.
//
//	the test ── Run ──► the same test in a child process, whose WEFT_CUDA_LIB and WEFT_NCCL_LIB name the stand-ins
//
// The libcuda shows eight devices (FAKE_DEVICES says otherwise), whose memory is the host's and whose streams run their work in
// order, each on a thread of its own. It runs no kernels. The libnccl has every function of version 2.30.7, or of an older one
// (-DVERSION=21801), and connects the communicators of one process. Its sums are made in rank order with one rounding, as
// package comm/local makes them, so results compare with ==. Calls that do not fit together wait until they are aborted, as
// with the real library; FAKE_NCCL_ASYNC, FAKE_NCCL_STUCK and FAKE_NCCL_LATE_JOIN, which testdata/libnccl.c explains, make it fail.
//
// What passes over the stand-in was not thereby run on a GPU.
package nccltest
