package moe

import (
	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/dtype"
)

// rows is a batch of float32 rows without gaps, as a slice and as a buffer.
type rows struct {
	data []float32 // [n, hidden]
	buf  comm.Buffer
	n    int
}

func rowsOf(data []float32, hidden int) rows {
	return rows{data: data, buf: comm.Of(data, hidden), n: len(data) / hidden}
}

// direct views b in place when it holds float32 rows without gaps.
func direct(b comm.Buffer) (rows, bool) {
	if b.DType() != dtype.F32 || !b.Contiguous() {
		return rows{}, false
	}
	data, err := comm.View[float32](b)
	return rows{data: data, buf: b, n: b.Rows()}, err == nil
}

// stageIn returns the rows of b in float32: in place, or widened into *s.
func stageIn(s *[]float32, b comm.Buffer) (rows, error) {
	if r, ok := direct(b); ok {
		return r, nil
	}
	r := rowsOf(grow(s, b.Rows()*b.Cols()), b.Cols())
	for i := range b.Rows() {
		if err := dtype.Float32s(r.data[i*b.Cols():(i+1)*b.Cols()], b.RowBytes(i), b.DType()); err != nil {
			return r, err
		}
	}
	return r, nil
}

// stageOut returns where the rows of b are computed: in place, or in *s, from where stageBack takes them.
func stageOut(s *[]float32, b comm.Buffer) rows {
	if r, ok := direct(b); ok {
		return r
	}
	return rowsOf(grow(s, b.Rows()*b.Cols()), b.Cols())
}

// stageBack rounds r into b unless stageOut returned b itself.
func stageBack(b comm.Buffer, r rows) error {
	if r.buf == b {
		return nil
	}
	for i := range b.Rows() {
		if err := dtype.FromFloat32s(b.RowBytes(i), r.data[i*b.Cols():(i+1)*b.Cols()], b.DType()); err != nil {
			return err
		}
	}
	return nil
}
