//go:build !amd64

package simd

import "unsafe"

// Own asks for cache lines that are about to be written, where there is a way to.
func Own(unsafe.Pointer, int) {}
