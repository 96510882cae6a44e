package safetensors

import "fmt"

// NumElements returns the product of the shape; 1 for a scalar.
func (t Tensor) NumElements() int {
	n := 1
	for _, d := range t.Shape {
		n *= d
	}
	return n
}

// Slice returns entries [lo, hi) of the first dimension, a view of the same bytes.
// It panics if t is a scalar or the range lies outside its first dimension.
func (t Tensor) Slice(lo, hi int) Tensor {
	if len(t.Shape) == 0 || lo < 0 || lo > hi || hi > t.Shape[0] {
		panic(fmt.Sprintf("safetensors: slice [%d, %d) of tensor %q with shape %v", lo, hi, t.Name, t.Shape))
	}
	stride := t.DType.Size()
	for _, d := range t.Shape[1:] {
		stride *= d
	}
	shape := append([]int{hi - lo}, t.Shape[1:]...)
	return Tensor{Name: t.Name, DType: t.DType, Shape: shape, Data: t.Data[lo*stride : hi*stride : hi*stride]}
}

// Index returns entry i of the first dimension without that dimension: expert i of [numExperts, rows, cols].
// It panics as Slice does.
func (t Tensor) Index(i int) Tensor {
	s := t.Slice(i, i+1)
	s.Shape = s.Shape[1:]
	return s
}

// matrix returns the shape as rows and columns; a vector is one row.
func (t Tensor) matrix() (rows, cols int, ok bool) {
	switch len(t.Shape) {
	case 1:
		return 1, t.Shape[0], true
	case 2:
		return t.Shape[0], t.Shape[1], true
	}
	return 0, 0, false
}
