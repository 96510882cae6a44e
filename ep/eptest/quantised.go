package eptest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/dtype"
	"github.com/weftgo/weft/ep"
)

// testQuantised dispatches rows that the caller quantised: any bytes, NaN of every kind among them, of odd sizes and strides. They must
// come as they went, scales beside them, and Combine must not care.
func testQuantised(t *testing.T, on *rig) {
	ranks := on.num(3)
	onHost := on.world(t, ranks).Local()[0].Device().Kind == comm.CPU
	numLarge := 0
	plain := ep.Config{NumExperts: 7, TopK: 3, Hidden: 14, MaxTokensPerRank: 9, Quantised: true}
	for _, v := range []struct {
		wire             dtype.DType
		cols, scaleBytes int
		gap              int // bytes between rows of x, and of scales
		tokens           int
	}{
		{dtype.F8E4M3, 0, 0, 0, 9},
		{dtype.F8E4M3, 130, 8, 0, 9},
		{dtype.F8E5M2, 13, 1, 3, 9},
		{dtype.I8, 1, 5, 1, 9},
		{dtype.U8, 7, 3, 0, 9}, // two fp4 in each
		{dtype.U8, 2880, 90, 32, 9},
		{dtype.F8E4M3, 1280, 40, 16, 60},
		{dtype.F8E4M3, 1280, 40, 0, 300}, // on a GPU blocks share the tokens, and rows go by bulk copies
		{dtype.F8E5M2, 1040, 13, 16, 300},
		{dtype.I8, 33, 2, 1, 300},
	} {
		if v.tokens > 60 {
			// They are most of the suite under the race detector, 41 of 56 s, and of its time on an emulated GPU.
			if numLarge++; testing.Short() && (onHost || numLarge > 1) {
				continue
			}
		}
		v.tokens = on.tokens(v.tokens)
		for i, layout := range []ep.Layout{ep.Rows, ep.Expanded} {
			cfg := plain
			cfg.Wire, cfg.WireCols, cfg.ScaleBytes, cfg.Layout, cfg.MaxTokensPerRank = v.wire, v.cols, v.scaleBytes, layout, v.tokens
			cfg.DType = []dtype.DType{dtype.BF16, dtype.F32}[i]
			cfg.Alignment = 1 + 3*i
			if v.scaleBytes%2 == 1 {
				cfg.Blocks = 1 // on a GPU one block alone
			}
			cfg.Output = ep.Output(i)
			t.Run(fmt.Sprintf("%v cols %d scales %d gap %d tokens %d %v", v.wire, v.cols, v.scaleBytes, v.gap, v.tokens, layout), func(t *testing.T) {
				err := on.world(t, ranks).Run(context.Background(), func(ctx context.Context, c *comm.Comm) error {
					x, err := on.create(ctx, c, cfg)
					if err != nil {
						return err
					}
					for seed, s := range usual(cfg, ranks) {
						if err := newRaw(x.Config(), s, uint64(seed)).run(c, x, s, v.gap); err != nil {
							return fmt.Errorf("rank %d: %v: %w", c.Rank(), s, err)
						}
					}
					return x.Close(ctx)
				})
				require.NoError(t, err)
			})
		}
	}
	t.Run("refused", func(t *testing.T) { testQuantisedRefused(t, on) })
}

// raw is the bytes that each rank dispatches in a step.
type raw struct{ rows, scales [][]byte }

func newRaw(cfg ep.Config, s Step, seed uint64) (w raw) {
	for rank, n := range s.numTokens() {
		rng := rand.NewChaCha8([32]byte{byte(seed), byte(rank)})
		random := func(n int) []byte {
			b := make([]byte, n)
			_, _ = rng.Read(b) // it has no errors
			return b
		}
		rows := random(n * cfg.WireCols)
		for i := range min(256, len(rows)) {
			rows[i] = byte(i) // every value, once
		}
		w.rows, w.scales = append(w.rows, rows), append(w.scales, random(n*cfg.ScaleBytes))
	}
	return w
}

// strided makes a buffer of type t with gap bytes of 0xee behind each row.
func strided(b []byte, rows, cols, gap int, t dtype.DType) comm.Buffer {
	list := bytes.Repeat([]byte{0xee}, rows*(cols+gap)+8)
	for i := range rows {
		copy(list[i*(cols+gap):], b[i*cols:(i+1)*cols])
	}
	return comm.OfBytes(list[:rows*(cols+gap)], t, rows, cols+gap).Columns(0, cols)
}

// run does a step on one rank: rows and scales by their bytes, the sum by the experts' function of the step's tokens.
func (w raw) run(c *comm.Comm, x ep.Exchanger, s Step, gap int) error {
	cfg, me := x.Config(), c.Rank()
	n := len(s.IDs[me]) / cfg.TopK
	route := ep.Routing{IDs: comm.Of(s.IDs[me], cfg.TopK), Weights: comm.Of(s.Weight[me], cfg.TopK)}
	if cfg.ScaleBytes > 0 {
		route.Scales = strided(w.scales[me], n, cfg.ScaleBytes, gap, dtype.U8)
	}
	r, err := x.Dispatch(comm.Stream{}, strided(w.rows[me], n, cfg.WireCols, gap, cfg.Wire), route)
	if err != nil {
		return err
	}
	v := viewOf(cfg, s, me, x.Name() == "agrs")
	if err := w.compare(cfg, v, r); err != nil {
		return err
	}
	partial := map[int][]float64{}
	for e, slots := range v.slots {
		first := int(list[int32](r.Index.Offsets)[e])
		for i, slot := range slots {
			from := v.rows[slot.row]
			y := make([]float32, cfg.Hidden)
			for j := range y {
				y[j] = expertOf(v.experts[e], s.Tokens[from[0]][from[1]*cfg.Hidden+j])
			}
			if cfg.Output == ep.ExpertRows {
				writeRow(r.Y, first+i, y)
				continue
			}
			if partial[slot.row] == nil {
				partial[slot.row] = make([]float64, cfg.Hidden)
			}
			for j, v := range y {
				partial[slot.row][j] += float64(slot.weight * v)
			}
		}
	}
	for row, sum := range partial {
		y := make([]float32, cfg.Hidden)
		for j, v := range sum {
			y[j] = float32(v)
		}
		writeRow(r.Y, row, y)
	}
	out := narrow(make([]float32, n*cfg.Hidden), n, cfg.Hidden, cfg.Hidden, cfg.DType)
	if err := x.Combine(comm.Stream{}, out, r.Y, r); err != nil {
		return err
	}
	want := outOf(cfg, s, me, 0)
	for t := range n {
		for j, got := range widen(out, t) {
			if float64(got) != want[t*cfg.Hidden+j] {
				return fmt.Errorf("token %d column %d is %v, want %v", t, j, got, want[t*cfg.Hidden+j])
			}
		}
	}
	return nil
}

// compare checks every byte that came.
func (w raw) compare(cfg ep.Config, v view, r *ep.Received) error {
	if r.X.DType() != cfg.Wire || r.X.Cols() != cfg.WireCols || r.Scales.IsZero() != (cfg.ScaleBytes == 0) {
		return fmt.Errorf("got X %v, scales %v", r.X, r.Scales)
	}
	var from []int // received row of each row of X; -1 for zeros
	const gap = -2
	for i := range v.rows {
		from = append(from, i)
		if v.rows[i][0] < 0 {
			from[i] = gap
		}
	}
	if cfg.Layout == ep.Expanded {
		from = from[:0]
		for _, row := range list[int32](r.Index.Row) {
			from = append(from, int(row))
		}
	}
	if r.X.Rows() != len(from) || cfg.ScaleBytes > 0 && (r.Scales.Rows() != len(from) || r.Scales.Cols() != cfg.ScaleBytes || r.Scales.DType() != dtype.U8) {
		return fmt.Errorf("got X %v and scales %v for %d rows", r.X, r.Scales, len(from))
	}
	for i, row := range from {
		if row == gap {
			continue
		}
		x, scale := make([]byte, cfg.WireCols), make([]byte, cfg.ScaleBytes)
		if row >= 0 {
			rank, t := v.rows[row][0], v.rows[row][1]
			x, scale = w.rows[rank][t*cfg.WireCols:(t+1)*cfg.WireCols], w.scales[rank][t*cfg.ScaleBytes:(t+1)*cfg.ScaleBytes]
		}
		if at := differ(x, r.X.RowBytes(i)); at >= 0 {
			return fmt.Errorf("row %d of X (row %d) differs at byte %d", i, row, at)
		}
		if cfg.ScaleBytes > 0 && !bytes.Equal(scale, r.Scales.RowBytes(i)) {
			return fmt.Errorf("scales %d (row %d) are % x, want % x", i, row, r.Scales.RowBytes(i), scale)
		}
	}
	return nil
}

// testQuantisedRefused: scales that do not fit the rows are Invalid on all ranks, and the next call works.
func testQuantisedRefused(t *testing.T, on *rig) {
	ranks := on.num(3)
	cfg := ep.Config{NumExperts: 6, TopK: 2, Hidden: 8, MaxTokensPerRank: 4, Quantised: true, Wire: dtype.I8, ScaleBytes: 3}
	good := NewStep("good", cfg, 1, even(ranks, 3), distinct)
	x := comm.Of(make([]int8, 2*8), 8)
	ids, weights := comm.Of(make([]int32, 4), 2), comm.Of(make([]float32, 4), 2)
	for _, bad := range []struct {
		text   string
		x      comm.Buffer
		scales comm.Buffer
	}{
		{"scales: no buffer", x, comm.Buffer{}},
		{"where u8[2, 3] is needed", x, comm.Of(make([]uint8, 8), 4)},
		{"scales is f32[2, 3]", x, comm.Of(make([]float32, 6), 3)},
		{"where i8[numTokens, 8] is needed", comm.Of(make([]float32, 16), 8), comm.Of(make([]uint8, 6), 3)},
	} {
		err := on.world(t, ranks).Run(context.Background(), func(ctx context.Context, c *comm.Comm) error {
			e, err := on.create(ctx, c, cfg)
			if err != nil {
				return err
			}
			w := newRaw(e.Config(), good, 3)
			if c.Rank() == 1 {
				_, err := e.Dispatch(comm.Stream{}, bad.x, ep.Routing{IDs: ids, Weights: weights, Scales: bad.scales})
				if !isInvalid(err, bad.text) {
					return fmt.Errorf("%q: %v", bad.text, err)
				}
			} else if err := w.run(c, e, good, 0); !errors.Is(err, comm.Invalid) {
				return fmt.Errorf("rank %d after %q on rank 1: %v", c.Rank(), bad.text, err)
			}
			return w.run(c, e, good, 0)
		})
		require.NoError(t, err)
	}
	plain := ep.Config{NumExperts: 6, TopK: 2, Hidden: 8, MaxTokensPerRank: 4}
	err := on.world(t, on.num(1)).Run(context.Background(), func(ctx context.Context, c *comm.Comm) error {
		e, err := on.create(ctx, c, plain)
		if err != nil {
			return err
		}
		_, err = e.Dispatch(comm.Stream{}, comm.Of(make([]float32, 16), 8), ep.Routing{IDs: ids, Weights: weights, Scales: comm.Of(make([]uint8, 6), 3)})
		if !isInvalid(err, "and Config has Quantised false") {
			return fmt.Errorf("scales of rows that have none: %w", err)
		}
		return e.Close(ctx)
	})
	require.NoError(t, err)
}
