// Package rendezvous is how the processes of a job find each other, and how they notice that one of them is gone.
//
// A [Store] is a small table of values that all processes see: Set, Get (which waits) and Add. It carries addresses, NCCL's
// unique ids and agreements of a few bytes, never tensors. [Exchange] is an all_gather over it.
//
//	torchrun, mpirun, srun, weft launch, ...
//	   │ variables
//	FromEnv ─► Job{Rank 2, Size 4, Address, Token}
//	   │
//	Join ──────────────┬──────────────┬──────────────┐ one TCP connection each
//	process 0 ── Client ─► Server ◄── Client    Client    Client
//	                    table; who is alive   process 1  2    3
//
// [FromEnv] reads who this process is from the variables of whoever started it. [Join] connects it with the others; process 0
// serves the store, unless weft launch does. It returns when all are there.
//
// # Failure
//
// A process that is killed ends its connection, and one that is stopped or cut off falls silent. The server then declares the
// job dead and tells everyone: each operation that waits, and each later one, returns [comm.Remote] with that process as Peer,
// and [Client.Done] closes. So does the loss of the store itself. [Client.Abort] says that this process has failed, and why;
// [Client.Guard] ties a world to the job, both ways. A dead job stays dead; whoever started it starts it anew. [Client.Leave] is
// the end in order: a process that returns without it is taken for lost.
//
// # The wire
//
// Both sides prove by an HMAC over fresh nonces that they know the token, which is not sent. Then frames: length, kind, number of
// the operation, body; each with a limit, as keys, values, their sum, waiting operations and connections have. Nothing is
// encrypted: on a network that others listen to, values are no secrets.
package rendezvous
