//go:build !race

package race

import "unsafe"

// Enabled says whether the race detector is compiled in.
const Enabled = false

// ReadRange reports a read of numBytes bytes at p. Without the race detector it does nothing.
func ReadRange(_ unsafe.Pointer, _ int) {}

// WriteRange reports a write of numBytes bytes at p. Without the race detector it does nothing.
func WriteRange(_ unsafe.Pointer, _ int) {}
