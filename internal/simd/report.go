package simd

import (
	"unsafe"

	"github.com/weftgo/weft/internal/race"
)

// reading tells the race detector that the assembly reads the slices.
func reading[T float32 | uint16 | int32](xs ...[]T) {
	if race.Enabled {
		for _, x := range xs {
			race.ReadRange(unsafe.Pointer(unsafe.SliceData(x)), len(x)*int(unsafe.Sizeof(*new(T))))
		}
	}
}

// writing tells the race detector that the assembly writes the slice.
func writing[T float32 | uint16 | int32](x []T) {
	if race.Enabled {
		race.WriteRange(unsafe.Pointer(unsafe.SliceData(x)), len(x)*int(unsafe.Sizeof(*new(T))))
	}
}
