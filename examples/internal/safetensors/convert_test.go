package safetensors

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/big"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// matrix makes a [rows, cols] tensor whose element i holds the integer i, which all three types hold exactly.
func matrixOf(d DType, rows, cols int) Tensor {
	t := Tensor{Name: "m", DType: d, Shape: []int{rows, cols}}
	for i := range rows * cols {
		bits := math.Float32bits(float32(i))
		switch d {
		case F32:
			t.Data = binary.LittleEndian.AppendUint32(t.Data, bits)
		case BF16:
			t.Data = binary.LittleEndian.AppendUint16(t.Data, uint16(bits>>16))
		case F16:
			h := uint16(0)
			if i > 0 {
				h = uint16(bits>>13&0x3ff) | uint16(int(bits>>23)-127+15)<<10
			}
			t.Data = binary.LittleEndian.AppendUint16(t.Data, h)
		}
	}
	return t
}

func TestFloat32Rectangles(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := rapid.SampledFrom([]DType{F32, BF16, F16}).Draw(t, "dtype")
		rows := rapid.IntRange(0, 12).Draw(t, "rows")
		cols := rapid.IntRange(0, 20).Draw(t, "cols")
		rowLo := rapid.IntRange(0, rows).Draw(t, "rowLo")
		rowHi := rapid.IntRange(rowLo, rows).Draw(t, "rowHi")
		colLo := rapid.IntRange(0, cols).Draw(t, "colLo")
		colHi := rapid.IntRange(colLo, cols).Draw(t, "colHi")
		m := matrixOf(d, rows, cols)
		var want []float32
		for r := rowLo; r < rowHi; r++ {
			for c := colLo; c < colHi; c++ {
				want = append(want, float32(r*cols+c))
			}
		}
		got := make([]float32, len(want))
		for i := range got {
			got[i] = float32(math.NaN())
		}
		require.NoError(t, Float32(got, m, rowLo, rowHi, colLo, colHi))
		require.Equal(t, want, append([]float32(nil), got...))
	})
}

func TestFloat32Vector(t *testing.T) {
	v := matrixOf(BF16, 1, 5)
	v.Shape = []int{5}
	dst := make([]float32, 3)
	require.NoError(t, Float32(dst, v, 0, 1, 2, 5))
	require.Equal(t, []float32{2, 3, 4}, dst)
}

func TestFloat32Refuses(t *testing.T) {
	m := matrixOf(F32, 2, 3)
	err := Float32(make([]float32, 9), m, 0, 3, 0, 3)
	require.EqualError(t, err, `safetensors: tensor "m": rows [0, 3) and columns [0, 3) are not within [2, 3]`)
	require.ErrorContains(t, Float32(make([]float32, 5), m, 0, 2, 0, 3), "2 rows of 3 columns do not fit dst of 5")
	require.ErrorContains(t, Float32(nil, m, -1, 0, 0, 3), "rows [-1, 0)")
	require.ErrorContains(t, Float32(nil, m, 0, 1, 3, 2), "columns [3, 2)")
	m.DType = F8E4M3
	require.EqualError(t, Float32(nil, m, 0, 0, 0, 0),
		`safetensors: tensor "m": cannot convert F8_E4M3 to float32, want F32, BF16 or F16`)
	m.Shape = []int{1, 2, 3}
	require.ErrorContains(t, Float32(nil, m, 0, 0, 0, 0), "shape [1 2 3] is not a matrix")
}

// All 65,536 halves against the definition, computed without floating-point tricks.
func TestHalf(t *testing.T) {
	for i := range 1 << 16 {
		h := uint16(i)
		got := half(h)
		exp, frac := int(h>>10&31), int64(h&1023)
		if exp == 31 {
			if frac != 0 {
				require.True(t, math.IsNaN(float64(got)), "%#04x", h)
			} else {
				require.True(t, math.IsInf(float64(got), 1-2*int(h>>15)), "%#04x", h)
			}
			continue
		}
		if exp > 0 {
			frac += 1024
		} else {
			exp = 1
		}
		want, _ := new(big.Float).SetMantExp(big.NewFloat(float64(frac)), exp-25).Float32()
		if h>>15 == 1 {
			want = float32(math.Copysign(float64(want), -1))
		}
		require.Equal(t, math.Float32bits(want), math.Float32bits(got), "%#04x", h)
	}
}

func TestSliceAndIndex(t *testing.T) {
	m := matrixOf(BF16, 12, 5)
	m.Shape = []int{3, 4, 5}
	e := m.Index(1)
	require.Equal(t, []int{4, 5}, e.Shape)
	half := e.Slice(2, 4)
	require.Equal(t, []int{2, 5}, half.Shape)
	dst := make([]float32, 10)
	require.NoError(t, Float32(dst, half, 0, 2, 0, 5))
	for i, v := range dst {
		require.Equal(t, float32(20+10+i), v)
	}
	require.Panics(t, func() { m.Slice(0, 4) })
	require.Panics(t, func() { m.Index(-1) })
	require.Panics(t, func() { Tensor{}.Slice(0, 0) })
}

func BenchmarkFloat32(b *testing.B) {
	for _, d := range []DType{F32, BF16, F16} {
		b.Run(d.String(), func(b *testing.B) {
			m := matrixOf(d, 16, 100)
			dst := make([]float32, 1600)
			b.SetBytes(int64(len(m.Data)))
			for b.Loop() {
				if err := Float32(dst, m, 0, 16, 0, 100); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func ExampleFloat32() {
	header := `{"w":{"dtype":"BF16","shape":[2,3],"data_offsets":[0,12]}}`
	data := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	data = append(data, header...)
	for _, v := range []float32{1, 2, 3, 4, 5, 6} {
		data = binary.LittleEndian.AppendUint16(data, uint16(math.Float32bits(v)>>16))
	}
	f, err := Parse(data, "example")
	if err != nil {
		panic(err)
	}
	w, _ := f.Tensor("w")
	right := make([]float32, 4) // both rows, the last two columns
	if err := Float32(right, w, 0, 2, 1, 3); err != nil {
		panic(err)
	}
	fmt.Println(w.DType, w.Shape, right)
	// Output: BF16 [2 3] [2 3 5 6]
}
