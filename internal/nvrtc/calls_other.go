//go:build !(linux && cgo)

package nvrtc

import "github.com/weftgo/weft/internal/dl"

// Symbols returns nothing: without cgo, or not on Linux, no library is opened.
func Symbols() []dl.Symbol { return nil }

func bind([]uintptr)                              {}
func version() (string, error)                    { return "", nil }
func errorText(int) string                        { return "" }
func archs() []int                                { return nil }
func compile(Program, bool) ([]byte, string, int) { return nil, "", -1 }
