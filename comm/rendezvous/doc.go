// Package rendezvous is how the processes of a job find each other and notice that one of them is gone.
//
// A [Store] is a small table of values that all processes see: Set, Get (which waits) and Add. It carries addresses, NCCL's
// unique ids and agreements of a few bytes, never tensors.
package rendezvous
