//go:build race

package race

import (
	"runtime"
	"unsafe"
)

// Enabled says whether the race detector is compiled in.
const Enabled = true

// ReadRange reports a read of numBytes bytes at p. Ranges of zero or fewer bytes are ignored.
func ReadRange(p unsafe.Pointer, numBytes int) {
	if numBytes > 0 {
		runtime.RaceReadRange(p, numBytes)
	}
}

// WriteRange reports a write of numBytes bytes at p. Ranges of zero or fewer bytes are ignored.
func WriteRange(p unsafe.Pointer, numBytes int) {
	if numBytes > 0 {
		runtime.RaceWriteRange(p, numBytes)
	}
}
