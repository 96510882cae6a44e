//go:build !amd64

package gemm

// multiply runs the portable kernel.
func (v *view) multiply() { v.multiplyGo() }
