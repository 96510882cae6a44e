// Package turnstile lets the goroutines of all ranks wait for each other on the host, again and again.
//
// On a GPU, making a graph, freeing one and taking memory may wait for running kernels, so no rank may start a kernel that
// waits for its peers before all have done such work:
//
//	rank 0   make a graph ──┐            ┌── launch
//	rank 1   make a graph ──┤ Turnstile ├── launch
//	rank 2   make a graph ──┘            └── launch
//
// A barrier on the device cannot give that, as it is such a kernel itself.
package turnstile
