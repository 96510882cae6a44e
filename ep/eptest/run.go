package eptest

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/dtype"
	"github.com/weftgo/weft/ep"
)

// narrow makes a buffer of type t with the given row stride; gaps are NaN.
func narrow(x []float32, rows, cols, stride int, t dtype.DType) comm.Buffer {
	wide := make([]float32, rows*stride)
	for i := range wide {
		wide[i] = float32(math.NaN())
	}
	for i := range rows {
		copy(wide[i*stride:], x[i*cols:(i+1)*cols])
	}
	var b comm.Buffer
	switch t {
	case dtype.F32:
		b = comm.Of(wide, stride)
	case dtype.BF16:
		b = comm.Of(halves[dtype.BFloat16](wide, dtype.ToBFloat16), stride)
	case dtype.F16:
		b = comm.Of(halves[dtype.Float16](wide, dtype.ToFloat16), stride)
	}
	return b.Columns(0, cols)
}

func halves[T dtype.Element](x []float32, to func(float32) T) []T {
	y := make([]T, len(x))
	for i, v := range x {
		y[i] = to(v)
	}
	return y
}

// widen reads row i of b.
func widen(b comm.Buffer, i int) []float32 {
	x := make([]float32, b.Cols())
	if err := dtype.Float32s(x, b.RowBytes(i), b.DType()); err != nil {
		panic(err)
	}
	return x
}

// received reads row i of X, dequantised.
func received(r *ep.Received, i int) []float32 {
	x := widen(r.X, i)
	if !r.Scales.IsZero() {
		for j := range x {
			x[j] *= comm.Row[float32](r.Scales, i)[j/ep.ScaleGroup]
		}
	}
	return x
}

func list[T dtype.Element](b comm.Buffer) []T {
	x, err := comm.View[T](b)
	if err != nil {
		panic(err)
	}
	return x
}

// writeRow narrows x into row i of b.
func writeRow(b comm.Buffer, i int, x []float32) {
	if err := dtype.FromFloat32s(b.RowBytes(i), x, b.DType()); err != nil {
		panic(err)
	}
}

// experts is the stand-in for a rank's experts: it writes y from r as the configuration says.
func experts(ctx context.Context, cfg ep.Config, r *ep.Received, y comm.Buffer, names []int) {
	rows := list[int32](r.Index.Row)
	weights := list[float32](r.Index.Weight)
	ks := list[int32](r.Index.K)
	type term struct {
		k int32
		y []float32
	}
	partial := map[int32][]term{}
	for e, span := range r.Experts(ctx) {
		for s := span[0]; s < span[1]; s++ {
			at := s
			if cfg.Layout == ep.Rows {
				at = int(rows[s])
			}
			x := received(r, at)
			for j := range x {
				x[j] = expertOf(names[e], x[j])
			}
			if cfg.Output == ep.ExpertRows {
				writeRow(y, s, x)
				continue
			}
			for j := range x {
				x[j] = float32(weights[s] * x[j])
			}
			partial[rows[s]] = append(partial[rows[s]], term{ks[s], x})
		}
	}
	for row, terms := range partial {
		slices.SortFunc(terms, func(a, b term) int { return int(a.k - b.k) })
		sum := make([]float32, y.Cols())
		for _, t := range terms {
			for j, v := range t.y {
				sum[j] += v
			}
		}
		writeRow(y, int(row), sum)
	}
}

// options vary how one rank calls.
type options struct {
	gap     int  // extra elements between rows of x, out and bias
	ownY    bool // y is the caller's memory, not r.Y
	numBias int
}

// Run does one step on one rank and compares it with the oracle.
func run(ctx context.Context, c *comm.Comm, x ep.Exchanger, s Step, o options) error {
	cfg, me := x.Config(), c.Rank()
	n := len(s.IDs[me]) / cfg.TopK
	stride := cfg.Hidden + o.gap
	in := narrow(s.Tokens[me], n, cfg.Hidden, stride, cfg.DType)
	r, err := x.Dispatch(comm.Stream{}, in, ep.Routing{IDs: comm.Of(slices.Clone(s.IDs[me]), cfg.TopK), Weights: comm.Of(slices.Clone(s.Weight[me]), cfg.TopK)})
	if err != nil {
		return err
	}
	v := viewOf(cfg, s, me, x.Name() == "agrs")
	if err := v.compare(cfg, s, r); err != nil {
		return fmt.Errorf("rank %d: %v: %w", me, s, err)
	}
	if got, want := list[int32](r.Dropped), droppedOf(cfg, s, me); int64(got[0]) != want || got[1] != 0 {
		return fmt.Errorf("rank %d: %v: %v ids and copies dropped, want %d and 0", me, s, got, want)
	}
	y := r.Y
	if o.ownY {
		nan := make([]float32, y.Rows()*cfg.Hidden)
		for i := range nan {
			nan[i] = float32(math.NaN())
		}
		y = narrow(nan, y.Rows(), cfg.Hidden, stride, cfg.DType)
	}
	experts(ctx, cfg, r, y, v.experts)
	nan := make([]float32, n*cfg.Hidden)
	for i := range nan {
		nan[i] = float32(math.NaN())
	}
	out := narrow(nan, n, cfg.Hidden, stride, cfg.DType)
	var bias []comm.Buffer
	for range o.numBias {
		bias = append(bias, narrow(s.Bias[me], n, cfg.Hidden, stride, cfg.DType))
	}
	if err := x.Combine(comm.Stream{}, out, y, r, bias...); err != nil {
		return err
	}
	want := outOf(cfg, s, me, o.numBias)
	for t := range n {
		for j, got := range widen(out, t) {
			if float64(got) != want[t*cfg.Hidden+j] {
				return fmt.Errorf("rank %d: %v: token %d column %d is %v, want %v", me, s, t, j, got, want[t*cfg.Hidden+j])
			}
		}
	}
	return nil
}

// compare checks rows, index and padding of a result.
func (v view) compare(cfg ep.Config, s Step, r *ep.Received) error {
	counts, offsets := list[int32](r.Index.Counts), list[int32](r.Index.Offsets)
	rows, ks, weights := list[int32](r.Index.Row), list[int32](r.Index.K), list[float32](r.Index.Weight)
	if len(offsets) != len(v.slots)+1 || len(counts) != 2*len(v.slots) || r.Index.NumLocalExperts() != len(v.slots) {
		return fmt.Errorf("%d offsets and %d counts for %d local experts", len(offsets), len(counts), len(v.slots))
	}
	at := 0
	for e, slots := range v.slots {
		padded := (len(slots) + cfg.Alignment - 1) / cfg.Alignment * cfg.Alignment
		if int(offsets[e]) != at || int(counts[e]) != len(slots) || int(counts[len(v.slots)+e]) != padded {
			return fmt.Errorf("local expert %d: offset %d, counts %d and %d; want %d, %d, %d", e, offsets[e], counts[e], counts[len(v.slots)+e], at, len(slots), padded)
		}
		for i := range padded {
			want := slot{-1, -1, 0}
			if i < len(slots) {
				want = slots[i]
			}
			if got := (slot{int(rows[at]), int(ks[at]), weights[at]}); got != want {
				return fmt.Errorf("local expert %d slot %d is %v, want %v", e, i, got, want)
			}
			if cfg.Layout == ep.Expanded {
				if err := v.compareRow(cfg, s, r, at, want.row); err != nil {
					return err
				}
			}
			at++
		}
	}
	if at != len(rows) || int(offsets[len(v.slots)]) != at || r.Index.NumSlots() != at {
		return fmt.Errorf("%d slots, want %d", len(rows), at)
	}
	if cfg.Layout == ep.Rows {
		at = len(v.rows)
		for i, from := range v.rows {
			if from[0] < 0 {
				continue // a gap
			}
			if err := v.compareRow(cfg, s, r, i, i); err != nil {
				return err
			}
		}
	}
	if n := int(list[int32](r.NumRows)[0]); n != v.numRows {
		return fmt.Errorf("NumRows is %d, want %d", n, v.numRows)
	}
	wantY := len(rows)
	if cfg.Output == ep.PartialRows {
		wantY = len(v.rows)
	}
	if r.X.Rows() != at || r.Y.Rows() != wantY || r.X.DType() != cfg.Wire || r.Y.DType() != cfg.DType {
		return fmt.Errorf("got X %v and Y %v, want %d and %d rows of %v and %v", r.X, r.Y, at, wantY, cfg.Wire, cfg.DType)
	}
	return nil
}

// compareRow checks that row i of X is received row want; zeros for -1.
func (v view) compareRow(cfg ep.Config, s Step, r *ep.Received, i, want int) error {
	x := make([]float32, cfg.Hidden)
	if want >= 0 {
		from := v.rows[want]
		x = s.Tokens[from[0]][from[1]*cfg.Hidden : (from[1]+1)*cfg.Hidden]
	}
	for j, got := range received(r, i) {
		if got != x[j] {
			return fmt.Errorf("row %d of X, column %d is %v, want %v", i, j, got, x[j])
		}
	}
	return nil
}
