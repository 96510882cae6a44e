package eptest

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/dtype"
	"github.com/weftgo/weft/ep"
)

// testCounters holds Stats and Dropped against the oracle, and the expected number of copies on even routing.
func testCounters(t *testing.T, on *rig) {
	ranks := on.num(4)
	cfg := ep.Config{NumExperts: 10, TopK: 3, Hidden: 4, MaxTokensPerRank: 50}
	s := NewStep("dirty", cfg, 3, repeat(ranks, 50, 7, 0, 33), dirty)
	err := on.world(t, ranks).Run(context.Background(), func(ctx context.Context, c *comm.Comm) error {
		x, err := on.create(ctx, c, cfg)
		if err != nil {
			return err
		}
		if err := run(ctx, c, x, s, options{}); err != nil {
			return err
		}
		got, me := x.(ep.Meter).Stats(), c.Rank()
		n := int64(len(s.IDs[me]) / cfg.TopK)
		want := ep.Stats{NumDispatches: 1, NumTokens: n, NumCopies: n * int64(ranks), NumCrossCopies: n * int64(ranks-1)}
		if x.Name() == "alltoall" {
			copies, cross := copiesOf(x.Config(), s, me)
			want.NumCopies, want.NumCrossCopies = int64(copies), int64(cross)
		}
		if n := on.traits.Nodes; n > 0 && x.Name() == "alltoall" {
			want.NumNodeCopies, want.NumCrossNodeCopies = nodeCopiesOf(x.Config(), s, me, ranks/n)
		}
		want.DroppedIDs = droppedOf(x.Config(), s, me)
		for _, slots := range viewOf(x.Config(), s, me, true).slots {
			want.ExpertTokens = append(want.ExpertTokens, int64(len(slots)))
			want.NumSlots += int64(len(slots))
		}
		want.HeldBytes = got.HeldBytes
		symmetric, private := on.bytes(cfg, ranks)
		if got.HeldBytes <= 0 || got.HeldBytes > symmetric+private {
			return fmt.Errorf("rank %d holds %d bytes, bound %d + %d", me, got.HeldBytes, symmetric, private)
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			return fmt.Errorf("rank %d: %+v, want %+v", me, got, want)
		}
		return nil
	})
	require.NoError(t, err)
}

// testInterleaved runs two exchangers of different shapes on the same ranks, their results alive at once.
func testInterleaved(t *testing.T, on *rig) {
	ranks := on.num(3)
	a := ep.Config{NumExperts: 6, TopK: 2, Hidden: 24, MaxTokensPerRank: 8}
	b := ep.Config{NumExperts: 5, TopK: 3, Hidden: 7, MaxTokensPerRank: 4}
	err := on.world(t, ranks).Run(context.Background(), func(ctx context.Context, c *comm.Comm) error {
		xa, err := on.create(ctx, c, a)
		if err != nil {
			return err
		}
		xb, err := on.create(ctx, c, b)
		if err != nil {
			return err
		}
		for i := range uint64(6) {
			sa := NewStep("a", a, i, even(ranks, int(i)), distinct)
			sb := NewStep("b", b, i, ragged(ranks, 4), dirty)
			fa, err := begin(ctx, c, xa, sa)
			if err != nil {
				return err
			}
			fb, err := begin(ctx, c, xb, sb)
			if err != nil {
				return err
			}
			if err := fa(); err != nil {
				return err
			}
			if err := fb(); err != nil {
				return err
			}
		}
		return nil
	})
	require.NoError(t, err)
}

// begin dispatches a step and returns what finishes it.
func begin(ctx context.Context, c *comm.Comm, x ep.Exchanger, s Step) (finish func() error, err error) {
	cfg, me := x.Config(), c.Rank()
	r, err := x.Dispatch(comm.Stream{}, comm.Of(s.Tokens[me], cfg.Hidden),
		ep.Routing{IDs: comm.Of(s.IDs[me], cfg.TopK), Weights: comm.Of(s.Weight[me], cfg.TopK)})
	if err != nil {
		return nil, err
	}
	return func() error { return end(ctx, c, x, s, r) }, nil
}

// end runs experts and combine on a result, and compares.
func end(ctx context.Context, c *comm.Comm, x ep.Exchanger, s Step, r *ep.Received) error {
	cfg, me := x.Config(), c.Rank()
	v := viewOf(cfg, s, me, x.Name() == "agrs")
	if err := v.compare(cfg, s, r); err != nil {
		return err
	}
	experts(ctx, cfg, r, r.Y, v.experts)
	out := make([]float32, len(s.Tokens[me]))
	y := r.Y
	if err := x.Combine(comm.Stream{}, comm.Of(out, cfg.Hidden), y, r); err != nil {
		return err
	}
	if err := x.Combine(comm.Stream{}, comm.Of(out, cfg.Hidden), y, r); !isInvalid(err, "was taken") {
		return fmt.Errorf("rank %d: a second combine: %v", me, err)
	}
	for i, want := range outOf(cfg, s, me, 0) {
		if float64(out[i]) != want {
			return fmt.Errorf("rank %d: %v: value %d is %v, want %v", me, s, i, out[i], want)
		}
	}
	return nil
}

// testBanks holds several results at once, takes them in another order, and is refused one too many.
func testBanks(t *testing.T, on *rig) {
	const banks = 3
	ranks := on.num(3)
	cfg := ep.Config{NumExperts: 6, TopK: 2, Hidden: 5, MaxTokensPerRank: 6, Banks: banks}
	err := on.world(t, ranks).Run(context.Background(), func(ctx context.Context, c *comm.Comm) error {
		x, err := on.create(ctx, c, cfg)
		if err != nil {
			return err
		}
		var finish []func() error
		step := func(i uint64) Step { return NewStep("bank", cfg, i, ragged(ranks, 6), dirty) }
		for i := range uint64(banks) {
			f, err := begin(ctx, c, x, step(i))
			if err != nil {
				return err
			}
			finish = append(finish, f)
		}
		if _, err := begin(ctx, c, x, step(9)); !isInvalid(err, "all 3 banks hold results") {
			return fmt.Errorf("a dispatch without a bank: %v", err)
		}
		for _, i := range []int{1, 0, 2} {
			if err := finish[i](); err != nil {
				return err
			}
		}
		return releases(ctx, c, x, step(4))
	})
	require.NoError(t, err)
}

// testOrder: ranks that combine two results of equal shapes in different orders get an error, not each other's rows.
func testOrder(t *testing.T, on *rig) {
	ranks := on.num(3)
	cfg := ep.Config{NumExperts: 6, TopK: 2, Hidden: 5, MaxTokensPerRank: 6, Banks: 2}
	errs := make([]error, ranks)
	err := on.world(t, ranks).Run(context.Background(), func(ctx context.Context, c *comm.Comm) error {
		x, err := on.create(ctx, c, cfg)
		if err != nil {
			return err
		}
		var finish [2]func() error
		for i := range finish {
			if finish[i], err = begin(ctx, c, x, NewStep("order", cfg, 7, even(ranks, 4), distinct)); err != nil {
				return err
			}
		}
		errs[c.Rank()] = finish[c.Rank()%2]()
		return nil
	})
	require.NoError(t, err)
	for rank, err := range errs {
		require.True(t, isInvalid(err, "ranks disagree: rank 0 calls"), "rank %d: %v", rank, err)
		require.ErrorContains(t, err, "tag 1, rank 1 calls")
	}
}

// releases checks that Release frees a bank, once, and that a stale result is refused even when its bank is in use again.
func releases(ctx context.Context, c *comm.Comm, x ep.Exchanger, s Step) error {
	cfg, me := x.Config(), c.Rank()
	in := comm.Of(s.Tokens[me], cfg.Hidden)
	route := ep.Routing{IDs: comm.Of(s.IDs[me], cfg.TopK), Weights: comm.Of(s.Weight[me], cfg.TopK)}
	stale, err := x.Dispatch(comm.Stream{}, in, route)
	if err != nil {
		return err
	}
	y := stale.Y
	stale.Release()
	stale.Release()
	for range stale.Experts(ctx) {
		return fmt.Errorf("a released result has experts")
	}
	f, err := begin(ctx, c, x, s)
	if err != nil {
		return err
	}
	stale.Release()
	if err := x.Combine(comm.Stream{}, in, y, stale); !isInvalid(err, "was taken") {
		return fmt.Errorf("a combine of a released result: %v", err)
	}
	if err := x.Combine(comm.Stream{}, in, y, &ep.Received{}); !isInvalid(err, "not of this exchanger") {
		return fmt.Errorf("a combine of a foreign result: %v", err)
	}
	if err := f(); err != nil {
		return err
	}
	if err := x.Close(ctx); err != nil {
		return err
	}
	if _, err := x.Dispatch(comm.Stream{}, in, route); !isInvalid(err, "closed") {
		return fmt.Errorf("a dispatch after close: %v", err)
	}
	return x.Close(ctx)
}

// testNumTokens gives more rows than count: the rest is neither read nor written.
func testNumTokens(t *testing.T, on *rig) {
	ranks := on.num(3)
	cfg := ep.Config{NumExperts: 4, TopK: 2, Hidden: 3, MaxTokensPerRank: 5}
	err := on.world(t, ranks).Run(context.Background(), func(ctx context.Context, c *comm.Comm) error {
		x, err := on.create(ctx, c, cfg)
		if err != nil {
			return err
		}
		me := c.Rank()
		s := NewStep("counted", cfg, 1, repeat(ranks, 2, 0, 5), distinct)
		n := len(s.IDs[me]) / cfg.TopK
		const rows = 7 // more than MaxTokensPerRank
		in, out := make([]float32, rows*cfg.Hidden), make([]float32, rows*cfg.Hidden)
		for i := range in {
			in[i], out[i] = float32(math.NaN()), -77
		}
		copy(in, s.Tokens[me])
		ids, w := make([]int32, rows*cfg.TopK), make([]float32, rows*cfg.TopK)
		copy(ids, s.IDs[me])
		copy(w, s.Weight[me])
		r, err := x.Dispatch(comm.Stream{}, comm.Of(in, cfg.Hidden), ep.Routing{IDs: comm.Of(ids, cfg.TopK),
			Weights: comm.Of(w, cfg.TopK), NumTokens: comm.Of([]int32{int32(n)}, 1)})
		if err != nil {
			return err
		}
		v := viewOf(x.Config(), s, me, x.Name() == "agrs")
		if err := v.compare(x.Config(), s, r); err != nil {
			return err
		}
		experts(ctx, x.Config(), r, r.Y, v.experts)
		if err := x.Combine(comm.Stream{}, comm.Of(out, cfg.Hidden), r.Y, r); err != nil {
			return err
		}
		want := outOf(x.Config(), s, me, 0)
		for i, got := range out {
			if i < len(want) && float64(got) != want[i] || i >= len(want) && got != -77 {
				return fmt.Errorf("rank %d: value %d is %v", me, i, got)
			}
		}
		return nil
	})
	require.NoError(t, err)
}

// testNaN puts NaN into one token: its own output is NaN, all others are as without.
func testNaN(t *testing.T, on *rig) {
	ranks := on.num(4)
	for _, wire := range []dtype.DType{dtype.F32, dtype.F8E4M3} {
		cfg := ep.Config{NumExperts: 8, TopK: 3, Hidden: 130, MaxTokensPerRank: 10, Wire: wire}
		s := NewStep("one NaN", cfg, 5, even(ranks, 10), distinct)
		err := on.world(t, ranks).Run(context.Background(), func(ctx context.Context, c *comm.Comm) error {
			x, err := on.create(ctx, c, cfg)
			if err != nil {
				return err
			}
			return oneNaN(ctx, c, x, s)
		})
		require.NoError(t, err)
	}
}

func oneNaN(ctx context.Context, c *comm.Comm, x ep.Exchanger, s Step) error {
	cfg, me := x.Config(), c.Rank()
	in := slices.Clone(s.Tokens[me])
	const token = 4
	if me == min(2, c.Size()-1) {
		for j := range cfg.Hidden {
			in[token*cfg.Hidden+j] = float32(math.NaN())
		}
	}
	r, err := x.Dispatch(comm.Stream{}, comm.Of(in, cfg.Hidden), ep.Routing{IDs: comm.Of(s.IDs[me], cfg.TopK), Weights: comm.Of(s.Weight[me], cfg.TopK)})
	if err != nil {
		return err
	}
	experts(ctx, cfg, r, r.Y, viewOf(cfg, s, me, x.Name() == "agrs").experts)
	out := make([]float32, len(in))
	if err := x.Combine(comm.Stream{}, comm.Of(out, cfg.Hidden), r.Y, r); err != nil {
		return err
	}
	for i, want := range outOf(cfg, s, me, 0) {
		nan := me == min(2, c.Size()-1) && i/cfg.Hidden == token
		if nan != (out[i] != out[i]) || !nan && float64(out[i]) != want {
			return fmt.Errorf("rank %d: value %d is %v, want %v (NaN: %v)", me, i, out[i], want, nan)
		}
	}
	return nil
}

// testAllocations: after the largest batch, a step allocates a few small objects on each rank and no memory for rows.
func testAllocations(t *testing.T, on *rig) {
	if testing.Short() {
		t.Skip("counts allocations; not with -short, which CI runs under the race detector")
	}
	ranks := on.num(1)
	if ranks > 1 {
		t.Skip("counts the allocations of one rank")
	}
	if on.world(t, ranks).Local()[0].Device().Kind != comm.CPU {
		t.Skip("the copies that this suite makes for a GPU allocate")
	}
	cfg := ep.Config{NumExperts: 8, TopK: 4, Hidden: 64, MaxTokensPerRank: 32}
	s := NewStep("steady", cfg, 1, even(ranks, 32), func(rng *rand.Rand, ids []int32, n int) { distinct(rng, ids, n) })
	err := on.world(t, ranks).Run(context.Background(), func(ctx context.Context, c *comm.Comm) error {
		x, err := on.create(ctx, c, cfg)
		if err != nil {
			return err
		}
		in, out := comm.Of(s.Tokens[0], cfg.Hidden), comm.Of(make([]float32, len(s.Tokens[0])), cfg.Hidden)
		route := ep.Routing{IDs: comm.Of(s.IDs[0], cfg.TopK), Weights: comm.Of(s.Weight[0], cfg.TopK)}
		n := testing.AllocsPerRun(50, func() {
			r, e := x.Dispatch(comm.Stream{}, in, route)
			if e == nil {
				e = x.Combine(comm.Stream{}, out, r.Y, r)
			}
			if e != nil {
				err = e
			}
		})
		most := 2.0
		if _, ok := x.(*inHalves); ok {
			most *= 3 // the exchanges between the halves have results too
		}
		if n > most {
			return fmt.Errorf("%v allocations a step, want at most %v", n, most)
		}
		return err
	})
	require.NoError(t, err)
}
