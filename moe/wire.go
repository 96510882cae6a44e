package moe

import (
	"fmt"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/dtype"
	"github.com/weftgo/weft/ep"
)

// receivedRows returns received rows in float32: in place, or widened into *s and multiplied by their scales.
func receivedRows(s *[]float32, got *ep.Received) (rows, error) {
	x, err := stageIn(s, got.X)
	if err != nil || got.X.DType() != dtype.F8E4M3 {
		return x, err
	}
	hidden := got.X.Cols()
	for i := range x.n {
		scales := comm.Row[float32](got.Scales, i)
		if need := (hidden + ep.ScaleGroup - 1) / ep.ScaleGroup; len(scales) != need {
			return x, fmt.Errorf("received rows have %d scales; hidden %d needs %d", len(scales), hidden, need)
		}
		for j, v := range x.data[i*hidden : (i+1)*hidden] {
			x.data[i*hidden+j] = v * scales[j/ep.ScaleGroup]
		}
	}
	return x, nil
}
