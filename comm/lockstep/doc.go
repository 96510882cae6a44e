// Package lockstep is what ranks agree on before each step of a model, so that a disagreement is an error with names in
// it and not a hang.
//
// Ranks that share the experts of a model are one machine: each forward pass is a fixed row of collectives, and a rank
// that skips one, or comes with another size in mind, stops all others. So before each step every rank says what it is
// about to run, in one small all_gather over the whole world:
//
//	            tokens  padded  mode  hash   generation
//	rank 0        512      0      0   9f3c..     41      replica 0, leader
//	rank 1        512      0      0   9f3c..      -      replica 0          must equal its leader
//	rank 2          0      0      0   0..        40      replica 1, leader  no work: joins with zero tokens
//	rank 3          0      0      0   0..         -      replica 1
//	            ───────────────────────────────────────
//	agreement   run; tokens [512 512 0 0], max 512, not balanced, generation 40
//
// Every rank sees the same table and draws the same conclusion from it: whether to run, to sleep or to stop is one
// shared value per step, never a rank's own opinion. If any replica has tokens all run, and a replica without work runs
// an empty batch. If none has, all sleep.
//
// # Sleeping without losing a wake-up
//
// A [Bell] counts wake-ups. A leader reads the generation before it looks for work and puts it into its record; when
// nobody has work, all ranks sleep until the generation is greater than the least of the leaders'. Work that arrived
// after a leader looked has rung the bell since, so the sleep ends at once.
//
// # Several processes
//
// Where the Comm has only the ranks of this process, Config.Processes brings in the others: the ranks of a process gather
// their records, its rank 0 swaps them for those of all processes through the store that they share, and broadcasts the
// table. From there on everything is as in one process: the same records, the same checks, the same conclusion. Ranks are
// numbered through, process by process. A Bell is one process's; [Lockstep.Sleep] wakes all processes when one is rung.
//
// On two cores, over TCP on the loopback device, one agreement took 54 us between two processes of one rank, 59 us between
// two of four ranks, 92 us between four processes and 166 us between eight; inside one process 0.6 us with two ranks and 9 us with eight.
// BenchmarkAgreeProcesses measures it.
//
// # What is caught
//
// Records that cannot go together (another mode or padding; tensor-parallel peers with different batches; a rank that
// is a step ahead) give every rank the same [comm.Error] of code Invalid, which names the ranks and both sides. A rank
// that is in another collective is caught by the driver, which compares what the ranks call. A rank that does not come
// at all is named by the world's timeout.
package lockstep
