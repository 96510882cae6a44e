package safetensors

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Float32 writes rows [rowLo, rowHi) and columns [colLo, colHi) of the matrix t, converted from F32, BF16 or F16,
// into dst [rowHi-rowLo, colHi-colLo], row-major. A vector counts as one row. All conversions are exact; NaN stays
// NaN. Only the bytes of the rectangle are read. A range outside the matrix, a dst of another length and a dtype
// that it cannot convert are errors.
func Float32(dst []float32, t Tensor, rowLo, rowHi, colLo, colHi int) error {
	rows, cols, ok := t.matrix()
	if !ok {
		return fmt.Errorf("safetensors: tensor %q: shape %v is not a matrix or a vector", t.Name, t.Shape)
	}
	var convert func(dst []float32, src []byte)
	switch t.DType {
	case F32:
		convert = fromF32
	case BF16:
		convert = fromBF16
	case F16:
		convert = fromF16
	default:
		return fmt.Errorf("safetensors: tensor %q: cannot convert %s to float32, want F32, BF16 or F16", t.Name, t.DType)
	}
	if rowLo < 0 || rowLo > rowHi || rowHi > rows || colLo < 0 || colLo > colHi || colHi > cols {
		return fmt.Errorf("safetensors: tensor %q: rows [%d, %d) and columns [%d, %d) are not within [%d, %d]",
			t.Name, rowLo, rowHi, colLo, colHi, rows, cols)
	}
	width := colHi - colLo
	if len(dst) != (rowHi-rowLo)*width {
		return fmt.Errorf("safetensors: tensor %q: %d rows of %d columns do not fit dst of %d",
			t.Name, rowHi-rowLo, width, len(dst))
	}
	size := t.DType.Size()
	if width == cols { // whole rows are one run
		convert(dst, t.Data[rowLo*cols*size:rowHi*cols*size])
		return nil
	}
	for r := rowLo; r < rowHi; r++ {
		src := t.Data[(r*cols+colLo)*size : (r*cols+colHi)*size]
		convert(dst[:width], src)
		dst = dst[width:]
	}
	return nil
}

func fromF32(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
	}
}

func fromBF16(dst []float32, src []byte) {
	for ; len(dst) >= 4 && len(src) >= 8; dst, src = dst[4:], src[8:] { // four at a time: embeddings are read at run time
		v := binary.LittleEndian.Uint64(src)
		dst[0] = math.Float32frombits(uint32(v) << 16)
		dst[1] = math.Float32frombits(uint32(v) & 0xffff0000)
		dst[2] = math.Float32frombits(uint32(v>>16) & 0xffff0000)
		dst[3] = math.Float32frombits(uint32(v>>32) & 0xffff0000)
	}
	for i := range dst {
		dst[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(src[2*i:])) << 16)
	}
}

func fromF16(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = half(binary.LittleEndian.Uint16(src[2*i:]))
	}
}

// half converts one IEEE binary16 value. With its exponent and fraction moved to float32's places the value is too
// small by 2^(127-15), subnormals included, and the product below is exact; infinities and NaN only need float32's
// exponent of all ones.
func half(h uint16) float32 {
	const rescale = 1 << (127 - 15)
	sign := uint32(h&0x8000) << 16
	rest := uint32(h&0x7fff) << 13
	if h&0x7c00 == 0x7c00 {
		return math.Float32frombits(sign | 0x7f800000 | rest&0x007fffff)
	}
	return math.Float32frombits(sign | math.Float32bits(math.Float32frombits(rest)*float32(rescale)))
}
