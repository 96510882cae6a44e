package safetensors

import (
	"encoding/binary"
	"testing"
)

// FuzzParse: no input panics, and in whatever passes every tensor has exactly the bytes of its shape, the tensors
// tile the file, and a conversion of all of them stays within bounds.
func FuzzParse(f *testing.F) {
	f.Add(file(twoTensors, 20))
	f.Add(file(`{"x":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}}`, 0))
	f.Add(file(`{"x":{"dtype":"F16","shape":[0,9223372036854775807],"data_offsets":[0,0]}}`, 0))
	f.Add(binary.LittleEndian.AppendUint64(nil, 2<<30))
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := Parse(data, "fuzz")
		if err != nil {
			return
		}
		total := 0
		for _, name := range file.Names() {
			x, ok := file.Tensor(name)
			if !ok || x.NumElements()*x.DType.Size() != len(x.Data) {
				t.Fatalf("tensor %q: %v %s with %d bytes", name, x.Shape, x.DType, len(x.Data))
			}
			total += len(x.Data)
			if rows, cols, ok := x.matrix(); ok && (x.DType == F32 || x.DType == F16 || x.DType == BF16) {
				if err := Float32(make([]float32, x.NumElements()), x, 0, rows, 0, cols); err != nil {
					t.Fatal(err)
				}
			}
		}
		if header := binary.LittleEndian.Uint64(data); uint64(total)+8+header != uint64(len(data)) {
			t.Fatalf("%d bytes of tensors and %d of header in a file of %d", total, header, len(data))
		}
	})
}
