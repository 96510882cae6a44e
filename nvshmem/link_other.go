//go:build !(linux && cgo)

package nvshmem

import "github.com/weftgo/weft/internal/dl"

// LinkSymbols returns nothing: without cgo, or not on Linux, no library is opened.
func LinkSymbols() []dl.Symbol { return nil }

func bindLinker([]uintptr)                                 {}
func jitLink(string, []byte, string) ([]byte, string, int) { return nil, "", -1 }
