package eptest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/dtype"
	"github.com/weftgo/weft/ep"
)

// TestSame gives every strategy the same tokens and experts, and compares the outputs' bits with each other and with those of
// one replica: every rank sums its experts for all tokens, and an all-reduce adds the ranks.
func TestSame(t *testing.T, open Open, strategies map[string]New) {
	const ranks, tokens = 4, 40
	cfg := ep.Config{NumExperts: 10, TopK: 4, Hidden: 136, MaxTokensPerRank: tokens, DType: dtype.BF16}
	w := open(t, ranks, 20*time.Second)
	outs := map[string][][]byte{"one replica": make([][]byte, ranks)}
	for name := range strategies {
		outs[name] = make([][]byte, ranks)
	}
	require.NoError(t, w.Run(context.Background(), func(ctx context.Context, c *comm.Comm) error {
		me := c.Rank()
		var all []sameInput
		for r := range ranks {
			all = append(all, newSameInput(cfg, tokens, r))
		}
		for _, name := range slices.Sorted(maps.Keys(strategies)) { // all ranks in one order
			out, err := sameBits(ctx, c, &rig{make: strategies[name]}, cfg, all[me])
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			outs[name][me] = out
		}
		sum, err := replica(ctx, c, cfg, all)
		outs["one replica"][me] = sum
		return err
	}))
	require.NoError(t, w.Close(context.Background()))
	for name, list := range outs {
		for r := range list {
			require.Equal(t, -1, differ(outs["one replica"][r], list[r]), "%s, rank %d", name, r)
		}
	}
}

// sameInput is one rank's tokens.
type sameInput struct {
	x       []float32
	ids     []int32
	weights []float32
}

func newSameInput(cfg ep.Config, tokens, rank int) (in sameInput) {
	rng := rand.New(rand.NewPCG(7, uint64(rank)))
	for range tokens * cfg.Hidden {
		in.x = append(in.x, dtype.ToBFloat16(float32(rng.NormFloat64())).Float32())
	}
	for range tokens {
		ids := make([]int32, cfg.TopK)
		distinct(rng, ids, cfg.NumExperts)
		in.ids = append(in.ids, ids...)
	}
	for range tokens * cfg.TopK {
		in.weights = append(in.weights, rng.Float32())
	}
	return in
}

// rough is an expert whose sums round.
func rough(e int, x float32) float32 { return float32(x*(0.3+float32(e))) + 0.1 }

func sameBits(ctx context.Context, c *comm.Comm, on *rig, cfg ep.Config, in sameInput) ([]byte, error) {
	x, err := on.create(ctx, c, cfg)
	if err != nil {
		return nil, err
	}
	n := len(in.ids) / cfg.TopK
	r, err := x.Dispatch(comm.Stream{}, narrow(in.x, n, cfg.Hidden, cfg.Hidden, cfg.DType), ep.Routing{IDs: comm.Of(in.ids, cfg.TopK), Weights: comm.Of(in.weights, cfg.TopK)})
	if err != nil {
		return nil, err
	}
	rows := list[int32](r.Index.Row)
	for e, span := range r.Experts(ctx) {
		name := x.Config().Placement.LogicalOf(c.Rank(), e)
		for s := span[0]; s < span[1]; s++ {
			row := widen(r.X, int(rows[s]))
			for j := range row {
				row[j] = rough(name, row[j])
			}
			writeRow(r.Y, s, row)
		}
	}
	out := narrow(make([]float32, n*cfg.Hidden), n, cfg.Hidden, cfg.Hidden, cfg.DType)
	err = x.Combine(comm.Stream{}, out, r.Y, r)
	return packed(out), errors.Join(err, x.Close(ctx))
}

// replica sums this rank's experts for all tokens in k order, adds the ranks by an all-reduce, and returns this rank's tokens.
func replica(ctx context.Context, c *comm.Comm, cfg ep.Config, all []sameInput) ([]byte, error) {
	var sums []float32
	h := cfg.Hidden
	for source, in := range all {
		for t := range len(in.ids) / cfg.TopK {
			sum := make([]float32, h)
			for k := t * cfg.TopK; k < (t+1)*cfg.TopK; k++ {
				if rank, _ := home(cfg, len(all), source, t, int(in.ids[k])); rank != c.Rank() {
					continue
				}
				for j := range sum {
					y := dtype.ToBFloat16(rough(int(in.ids[k]), in.x[t*h+j])).Float32()
					sum[j] += float32(in.weights[k] * y)
				}
			}
			sums = append(sums, sum...)
		}
	}
	n := len(sums) / h
	if c.Device().Kind == comm.CPU {
		b := narrow(sums, len(sums)/h, h, h, cfg.DType)
		err := c.AllReduce(comm.Stream{}, b, b, comm.Sum)
		per := b.Rows() / len(all)
		return packed(b.Slice(c.Rank()*per, (c.Rank()+1)*per)), err
	}
	on := &remote{c: c}
	var used []comm.Buffer
	b, err := on.up(narrow(sums, n, h, h, cfg.DType), &used)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(c.AllReduce(comm.Stream{}, b, b, comm.Sum), c.Wait(ctx, comm.Stream{})); err != nil {
		return nil, err
	}
	per := n / len(all)
	mine, err := on.down(b.Slice(c.Rank()*per, (c.Rank()+1)*per))
	on.free(used)
	return packed(mine), err
}

// TestLarge receives more than 4 GiB on one rank, and brings it back.
func TestLarge(t *testing.T, create New, open Open) {
	const ranks, tokens, hidden = 2, 70_000, 8192 // rows of 32 KiB
	cfg := ep.Config{NumExperts: 2, TopK: 1, Hidden: hidden, MaxTokensPerRank: tokens, Output: ep.PartialRows}
	w := open(t, ranks, 20*time.Second)
	require.NoError(t, w.Run(context.Background(), func(ctx context.Context, c *comm.Comm) error {
		x, err := create(ctx, c, cfg)
		if err != nil {
			return err
		}
		in, err := comm.Alloc(c, dtype.F32, tokens, hidden)
		if err != nil {
			return err
		}
		out, err := comm.Alloc(c, dtype.F32, tokens, hidden)
		if err != nil {
			return err
		}
		on := &remote{c: c}
		var used []comm.Buffer
		marks := make([]float32, 4*tokens) // at both ends of a row
		for i := range marks {
			marks[i] = float32(c.Rank()*tokens + i/4)
		}
		weights := make([]float32, tokens)
		ids, err := on.up(comm.Of(make([]int32, tokens), 1), &used) // all to expert 0
		if err != nil {
			return err
		}
		ws, err := on.up(comm.Of(weights, 1), &used)
		if err != nil {
			return err
		}
		s := comm.Stream{}
		for _, b := range []comm.Buffer{in.Columns(0, 4), in.Columns(hidden-4, hidden)} {
			if err := comm.Copy(c, s, b, comm.Of(marks, 4)); err != nil {
				return err
			}
		}
		r, err := x.Dispatch(s, in, ep.Routing{IDs: ids, Weights: ws})
		if err != nil {
			return err
		}
		if err := c.Wait(ctx, s); err != nil {
			return err
		}
		if c.Rank() == 0 {
			if err := marked(c, r.X, 0); err != nil {
				return err
			}
		}
		if err := errors.Join(comm.Copy(c, s, r.Y, r.X), x.Combine(s, out, r.Y, r), c.Wait(ctx, s), marked(c, out, float32(c.Rank()*tokens))); err != nil {
			return err
		}
		on.free(append(used, in, out))
		return x.Close(ctx)
	}))
	require.NoError(t, w.Close(context.Background()))
}

// marked checks that row i of b has first + i at both ends.
func marked(c *comm.Comm, b comm.Buffer, first float32) error {
	got := make([]float32, 4*b.Rows())
	for _, cols := range []comm.Buffer{b.Columns(0, 4), b.Columns(b.Cols()-4, b.Cols())} {
		if err := comm.Copy(c, comm.Stream{}, comm.Of(got, 4), cols); err != nil {
			return err
		}
		for i, v := range got {
			if v != first+float32(i/4) {
				return fmt.Errorf("row %d column %d is %v, want %v", i/4, i%4, v, first+float32(i/4))
			}
		}
	}
	return nil
}

// TestDelays: ranks that come seconds late are waited for, and closing with work in flight frees nothing that is in use.
func TestDelays(t *testing.T, create New, open Open) {
	cfg := ep.Config{NumExperts: 6, TopK: 2, Hidden: 8, MaxTokensPerRank: 4}
	w := open(t, 3, 20*time.Second)
	on := &rig{make: create}
	require.NoError(t, w.Run(context.Background(), func(ctx context.Context, c *comm.Comm) error {
		x, err := on.create(ctx, c, cfg)
		if err != nil {
			return err
		}
		if c.Rank() == 1 {
			time.Sleep(1500 * time.Millisecond)
		}
		if err := run(ctx, c, x, NewStep("late", cfg, 1, even(3, 4), distinct), options{}); err != nil {
			return err
		}
		for i := range 3 {
			far, ok := x.(*remote)
			if !ok {
				return x.Close(ctx)
			}
			used := []comm.Buffer{}
			s := NewStep("in flight", cfg, uint64(i), even(3, 4), distinct)
			in, err1 := far.up(comm.Of(s.Tokens[c.Rank()], cfg.Hidden), &used)
			ids, err2 := far.up(comm.Of(s.IDs[c.Rank()], cfg.TopK), &used)
			ws, err3 := far.up(comm.Of(s.Weight[c.Rank()], cfg.TopK), &used)
			_, err4 := far.Exchanger.Dispatch(comm.Stream{}, in, ep.Routing{IDs: ids, Weights: ws})
			if err := errors.Join(err1, err2, err3, err4, x.Close(ctx)); err != nil {
				return err
			}
			far.free(used)
			if x, err = on.create(ctx, c, cfg); err != nil {
				return err
			}
		}
		if err := run(ctx, c, x, NewStep("after", cfg, 9, even(3, 4), distinct), options{}); err != nil {
			return err
		}
		return x.Close(ctx)
	}))
	require.NoError(t, w.Close(context.Background()))
}
