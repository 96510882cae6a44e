package kernels

import "github.com/weftgo/weft/cuda"

// GatherArgs are the parameters of weft_gather: addresses, and strides and Bytes (of a row) in bytes.
type GatherArgs struct {
	Dst, Src, List       uint64
	DstStride, SrcStride int64
	Rows, Bytes          uint64
}

// AddArgs are the parameters of weft_add: addresses, and strides in bytes.
type AddArgs struct {
	Out, Rows, Start, Item, Weight uint64
	Bias                           [2]uint64
	OutStride, RowsStride          int64
	BiasStride                     [2]int64
	NumRows                        uint64
	NumBias, Hidden, DType, _      uint32
}

// gatherPiece is rows.cu's GATHER_PIECE.
const gatherPiece = 4096

// Gather copies rows by a list; for most see Index.
func (s *ExchangeSet) Gather(st *cuda.Stream, a *GatherArgs, most int) error {
	if a.Rows == 0 || a.Bytes == 0 {
		return nil
	}
	l := s.over(int(a.Rows*((a.Bytes+gatherPiece-1)/gatherPiece)), most)
	return run(s, st, s.gather, &l, a, nil)
}

// Add adds rows by lists; for most see Index.
func (s *ExchangeSet) Add(st *cuda.Stream, a *AddArgs, most int) error {
	if a.NumRows == 0 {
		return nil
	}
	l := s.over(int(a.NumRows)*int((a.Hidden+255)/256), most)
	return run(s, st, s.add, &l, a, nil)
}
