//go:build !linux

package suite

// bind would give the calling goroutine a CPU of its own.
func bind(int) (undo func()) { return func() {} }
