package suite

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// bind gives the calling goroutine a thread of its own on the n-th of the CPUs that this process may use, until undo is called. Where
// there are not so many, or the system refuses, it does nothing.
func bind(n int) (undo func()) {
	runtime.LockOSThread()
	var all, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil || n >= all.Count() {
		runtime.UnlockOSThread()
		return func() {}
	}
	for cpu := 0; ; cpu++ {
		if !all.IsSet(cpu) {
			continue
		}
		if n == 0 {
			one.Set(cpu)
			break
		}
		n--
	}
	_ = unix.SchedSetaffinity(0, &one)
	return func() {
		_ = unix.SchedSetaffinity(0, &all)
		runtime.UnlockOSThread()
	}
}
