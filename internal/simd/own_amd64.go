package simd

import "unsafe"

// Own asks for cache lines that are about to be written, all at once: stores wait for the lines that other cores have read one after
// the other. p is where the first line begins.
func Own(p unsafe.Pointer, lines int) {
	if lines > 0 {
		own(p, lines)
	}
}

//go:noescape
func own(p unsafe.Pointer, lines int)
