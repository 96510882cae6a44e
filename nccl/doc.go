// Package nccl binds NVIDIA's libnccl: its functions by their own names, for ranks of one process or of many.
//
//	NewGroup, NewCommunicator, NewAll, ... ──► *Communicator ── Enqueue, Begin ── one C call ──► a stream
//	                                             │ Split, Shrink, Grow ──► *Communicator
//	                                             └ RegisterWindow ──► *Window
//
// weft's driver over it is package ncclworld, which makes a comm.World of communicators.
//
// The library is opened when it is first needed (WEFT_NCCL_LIB, the loader's path, Python's wheels); 2.18.1 or newer works.
// A function that came later and is not there answers with a [MissingError] that names it and the version that has it.
// NCCL_* variables are the library's own; weft neither reads nor sets them.
//
// No goroutine locks its thread. Each call makes its device current, opens and closes its group, and copies NCCL's error text,
// all in one C call. Communicators are non-blocking unless Options.Blocking says otherwise: NCCL then works on threads of
// its own, and a context, a deadline or an abort ends the wait for a rank that does not come. A call that NCCL refuses
// breaks a non-blocking communicator.
package nccl
