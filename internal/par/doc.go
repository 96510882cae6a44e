// Package par spreads a loop over the cores that are idle, and costs next to nothing when none is.
//
// Ranks are goroutines: up to 64 of them may call [For] at once on two cores. Starting helpers then only adds
// scheduling work, so the package counts who is computing ([Enter] lets a rank say so outside of loops) and recruits a
// helper goroutine only while that count is below GOMAXPROCS:
//
//	caller ──┬─ chunk 0 ── chunk 2 ── chunk 3 ──┬── waits for chunks that helpers hold, returns
//	         └─ helper (only if a core is idle) ┘
//	              chunk 1 ── chunk 4
//
// Chunks are claimed from an atomic counter, so a slow helper delays the caller by one chunk at most. There is no
// pool of workers: a helper is a plain goroutine that ends when no chunk is left.
package par
