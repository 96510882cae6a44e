//go:build !race && (amd64 || arm64)

package comm

import "unsafe"

// add is for the goroutine that owns the tally. A word is stored at once on these processors.
func (t *tally) add(d int64) { *(*int64)(unsafe.Pointer(&t.n)) += d }
