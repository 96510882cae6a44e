package main

import (
	"fmt"

	"github.com/weftgo/weft/cuda"
)

// The owner's matrix: the tensor is a window of it, so that rows are not contiguous and begin at no round address.
const (
	matrixRows, matrixCols = 9, 37
	top, left              = 2, 5
	rows, cols             = 6, 29
)

// owner stands for another library of the process, with an allocator, streams and kernels of its own.
type owner struct {
	dev    *cuda.Device
	stream *cuda.Stream
	memory uintptr
}

func newOwner(ordinal int) (o *owner, err error) {
	o = new(owner)
	if o.dev, err = cuda.Open(ordinal); err != nil {
		return nil, err
	}
	if o.stream, err = o.dev.NewStream(0); err == nil {
		o.memory, err = o.dev.Alloc(4 * matrixRows * matrixCols)
	}
	if err != nil {
		o.close()
		return nil, err
	}
	return o, nil
}

func (o *owner) close() {
	if o == nil {
		return
	}
	_ = o.dev.Free(o.memory)
	if o.stream != nil {
		_ = o.stream.Close()
	}
	_ = o.dev.Close()
}

// make fills the matrix on the owner's stream and returns a window of it. The stream has not been waited for: weft's operation
// follows on it.
func (o *owner) make(rank int) (tensor, error) {
	x := make([]float32, matrixRows*matrixCols)
	for i := range x {
		x[i] = value(i, rank)
	}
	if err := o.stream.Upload(o.memory, cuda.Bytes(x)); err != nil {
		return tensor{}, err
	}
	return tensor{o.memory + 4*(top*matrixCols+left), rows, cols, matrixCols}, nil
}

func value(i, rank int) float32 { return float32(i%13) - 6 + 100*float32(rank) }

// check looks at the whole matrix: sums inside the window, the owner's own values around it.
func (o *owner) check(t tensor, rank, size int) error {
	x := make([]float32, matrixRows*matrixCols)
	if err := o.stream.Download(cuda.Bytes(x), o.memory); err != nil {
		return err
	}
	for i, v := range x {
		row, col := i/matrixCols-top, i%matrixCols-left
		want := value(i, rank)
		if row >= 0 && row < t.rows && col >= 0 && col < t.cols {
			want = 0
			for r := range size {
				want += value(i, r)
			}
		}
		if v != want {
			return fmt.Errorf("element [%d, %d] is %v, not %v", row, col, v, want)
		}
	}
	return nil
}
