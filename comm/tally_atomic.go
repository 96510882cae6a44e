//go:build race || !(amd64 || arm64)

package comm

// add is for the goroutine that owns the tally.
func (t *tally) add(d int64) { t.n.Add(d) }
