//go:build !amd64

package simd

// detect returns Go: there is assembly for amd64 only.
func detect() Level { return Go }
