// Package launch starts the processes of a job on this node, and ends them together: the work of weft launch.
//
//	weft launch ── store of the job (node 0's)
//	   ├─ rank 0 ── process group: whatever it starts ends with it
//	   ├─ rank 1       WEFT_RANK, WEFT_STORE, WEFT_TOKEN, ... and torchrun's names
//	   └─ rank 2
//
// The launcher of node 0 serves the store; those of other nodes are its agents, so that each hears of a rank that died
// elsewhere, also when the program does not use the store.
package launch
