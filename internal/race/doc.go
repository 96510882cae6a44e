// Package race tells the race detector what assembly reads and writes.
//
// The detector instruments Go code only: a slice that an assembly routine fills looks untouched to it, and a data race
// through that slice stays unseen. Each assembly call in this module is therefore preceded by reports of its operands:
//
//	race.ReadRange(unsafe.Pointer(&src[0]), len(src)*4)
//	race.WriteRange(unsafe.Pointer(&dst[0]), len(dst)*4)
//
// Without the race build tag both functions are empty and vanish by inlining; Enabled is a constant, so that loops
// which only report can be skipped at compile time.
package race
