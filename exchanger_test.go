package weft_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft"
	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/comm/local"
	"github.com/weftgo/weft/dtype"
	"github.com/weftgo/weft/ep"
	"github.com/weftgo/weft/routing"
)

func TestExchangerNames(t *testing.T) {
	cfg := ep.Config{NumExperts: 16, TopK: 2, Hidden: 4, MaxTokensPerRank: 2}
	want := map[string]string{"agrs": "agrs", "alltoall": "alltoall", "allgather_reducescatter": "agrs", "naive": "agrs",
		"deepep_high_throughput": "alltoall", "deepep-low-latency": "alltoall", "PPLX": "alltoall", "auto": "alltoall"}
	for name, strategy := range want {
		onRanks(t, 4, func(ctx context.Context, c *comm.Comm) error {
			x, err := weft.NewExchanger(ctx, c, name, cfg)
			if err != nil {
				return err
			}
			if x.Name() != strategy {
				return fmt.Errorf("%q made %s, want %s", name, x.Name(), strategy)
			}
			return x.Close(ctx)
		})
	}
	onRanks(t, 1, func(ctx context.Context, c *comm.Comm) error {
		x, err := weft.NewExchanger(ctx, c, "teleport", cfg)
		require.Nil(t, x)
		require.ErrorIs(t, err, comm.Invalid)
		require.ErrorContains(t, err, `"teleport"; use one of agrs, alltoall, auto,`)
		for _, name := range []string{"agrs", "alltoall"} {
			x, err := weft.NewExchanger(ctx, c, name, ep.Config{})
			require.ErrorIs(t, err, comm.Invalid)
			require.Nil(t, x)
		}
		return nil
	})
}

func TestChooseExchanger(t *testing.T) {
	for _, c := range []struct {
		kind comm.Kind
		size int
		cfg  ep.Config
		want string
	}{
		{comm.CPU, 1, ep.Config{NumExperts: 64, TopK: 8}, "agrs"},
		{comm.CPU, 1, ep.Config{NumExperts: 64, TopK: 8, RankInvariant: true}, "alltoall"},
		{comm.CPU, 8, ep.Config{NumExperts: 64, TopK: 2}, "alltoall"}, // 1.9 of 8
		{comm.CPU, 8, ep.Config{NumExperts: 64, TopK: 3}, "alltoall"}, // 2.7 of 8
		{comm.CPU, 8, ep.Config{NumExperts: 128, TopK: 8}, "agrs"},    // 5.3 of 8
		{comm.CUDA, 8, ep.Config{NumExperts: 128, TopK: 8}, "alltoall"},
		{comm.CUDA, 4, ep.Config{NumExperts: 32, TopK: 8}, "agrs"},                                              // 3.7 of 4
		{comm.CPU, 2, ep.Config{NumExperts: 64, TopK: 8}, "agrs"},                                               // 2 of 2
		{comm.CPU, 4, ep.Config{NumExperts: 32, TopK: 8, MaxTokensPerRank: 8}, "agrs"},                          // 3.7 of 4
		{comm.CPU, 4, ep.Config{NumExperts: 32, TopK: 8, MaxTokensPerRank: 8, MaxRecvRows: 20}, "alltoall"},     // agrs would refuse
		{comm.CPU, 4, ep.Config{NumExperts: 32, TopK: 8, MaxTokensPerRank: 8, MaxRecvRows: 32}, "agrs"},         // it would not
		{comm.CPU, 16, ep.Config{NumExperts: 4, TopK: 4, MaxTokensPerRank: 8}, "alltoall"},                      // 4 of 16
		{comm.CPU, 4, ep.Config{NumExperts: 32, TopK: 8, MaxTokensPerRank: 8, RankInvariant: true}, "alltoall"}, // agrs would refuse
	} {
		require.Equal(t, c.want, weft.ChooseExchanger(c.kind, c.size, c.cfg), "%v, %d ranks, %+v", c.kind, c.size, c.cfg)
	}
}

// On even random routing alltoall sends near the expected number of copies, and agrs one to every rank.
func TestCopiesPerToken(t *testing.T) {
	const ranks, tokens = 8, 500
	cfg := ep.Config{NumExperts: 64, TopK: 6, Hidden: 1, MaxTokensPerRank: tokens}
	for _, name := range []string{"agrs", "alltoall"} {
		sent := make([]int64, ranks)
		cross := make([]int64, ranks)
		onRanks(t, ranks, func(ctx context.Context, c *comm.Comm) error {
			x, err := weft.NewExchanger(ctx, c, name, cfg)
			if err != nil {
				return err
			}
			rng := rand.New(rand.NewPCG(9, uint64(c.Rank())))
			var ids []int32
			for range tokens {
				for _, e := range rng.Perm(cfg.NumExperts)[:cfg.TopK] {
					ids = append(ids, int32(e))
				}
			}
			r, err := x.Dispatch(comm.Stream{}, comm.Of(make([]float32, tokens), 1),
				ep.Routing{IDs: comm.Of(ids, cfg.TopK), Weights: comm.Of(make([]float32, len(ids)), cfg.TopK)})
			if err != nil {
				return err
			}
			r.Release()
			s := x.(ep.Meter).Stats()
			sent[c.Rank()], cross[c.Rank()] = s.NumCopies, s.NumCrossCopies
			return x.Close(ctx)
		})
		perToken, crossing := mean(sent)/tokens, mean(cross)/tokens
		if name == "agrs" {
			require.Equal(t, 8.0, perToken)
			require.Equal(t, 7.0, crossing)
			continue
		}
		require.InEpsilon(t, cfg.WithDefaults(ranks).Placement.ExpectedCopies(cfg.TopK), perToken, 0.02)
		require.InEpsilon(t, perToken*(ranks-1)/ranks, crossing, 0.02)
	}
}

func mean(x []int64) float64 {
	sum := int64(0)
	for _, v := range x {
		sum += v
	}
	return float64(sum) / float64(len(x))
}

func onRanks(t *testing.T, ranks int, fn func(ctx context.Context, c *comm.Comm) error) {
	t.Helper()
	w, err := local.Open(local.Config{Ranks: ranks})
	require.NoError(t, err)
	require.NoError(t, w.Run(context.Background(), fn))
	require.NoError(t, w.Close(context.Background()))
}

// onRanks runs fn on the ranks of a batch.
func (b batch) onRanks(t *testing.T, fn func(ctx context.Context, c *comm.Comm) error) {
	t.Helper()
	ranks := len(b.start) - 1
	if b.numNodes == 0 {
		onRanks(t, ranks, fn)
		return
	}
	w := openNodes(t, b.numNodes, ranks/b.numNodes, 0)
	require.NoError(t, w.Run(context.Background(), fn))
	require.NoError(t, w.Close(context.Background()))
}

// batch is the tokens of all ranks, real numbers whose sums round.
type batch struct {
	cfg     ep.Config
	start   []int // [ranks+1]: first token of each rank
	x       []float32
	bias    []float32
	ids     []int32
	weights []float32

	numNodes int // 0: one level
}

func newBatch(cfg ep.Config, perRank []int) batch {
	rng := rand.New(rand.NewPCG(3, 4))
	b := batch{cfg: cfg, start: []int{0}}
	for i, n := range perRank {
		b.start = append(b.start, b.start[i]+n)
	}
	n := b.start[len(perRank)]
	for range n * cfg.Hidden {
		b.x, b.bias = append(b.x, float32(rng.NormFloat64())), append(b.bias, float32(rng.NormFloat64()))
	}
	for range n * cfg.TopK {
		b.ids, b.weights = append(b.ids, int32(rng.IntN(cfg.NumExperts+1))), append(b.weights, rng.Float32())
	}
	return b
}

func typed(x []float32, cols int, t dtype.DType) comm.Buffer {
	if t == dtype.BF16 {
		y := make([]dtype.BFloat16, len(x))
		for i, v := range x {
			y[i] = dtype.ToBFloat16(v)
		}
		return comm.Of(y, cols)
	}
	return comm.Of(append([]float32{}, x...), cols)
}

// expertRow is row x of the batch through expert e, rounded to the payload type.
func (b batch) expertRow(e, token int) []float32 {
	in := typed(b.x[token*b.cfg.Hidden:(token+1)*b.cfg.Hidden], b.cfg.Hidden, b.cfg.DType)
	y := make([]float32, b.cfg.Hidden)
	if err := dtype.Float32s(y, in.Bytes(), b.cfg.DType); err != nil {
		panic(err)
	}
	for i := range y {
		y[i] = float32(y[i]*(0.7+float32(e))) + 0.3
	}
	if err := dtype.Float32s(y, typed(y, b.cfg.Hidden, b.cfg.DType).Bytes(), b.cfg.DType); err != nil {
		panic(err)
	}
	return y
}

// exchange runs one strategy on all ranks and returns out of all tokens as bytes.
func (b batch) exchange(t *testing.T, name string, numBias int) []byte {
	h, k, dt := b.cfg.Hidden, b.cfg.TopK, b.cfg.DType
	all := typed(make([]float32, len(b.x)), h, dt)
	b.onRanks(t, func(ctx context.Context, c *comm.Comm) error {
		x, err := weft.NewExchanger(ctx, c, name, b.cfg)
		if err != nil {
			return err
		}
		lo, hi := b.start[c.Rank()], b.start[c.Rank()+1]
		r, err := x.Dispatch(comm.Stream{}, typed(b.x[lo*h:hi*h], h, dt),
			ep.Routing{IDs: comm.Of(b.ids[lo*k:hi*k], k), Weights: comm.Of(b.weights[lo*k:hi*k], k)})
		if err != nil {
			return err
		}
		in := make([]float32, h)
		for e, span := range r.Experts(ctx) {
			name := x.Config().Placement.LogicalOf(c.Rank(), e)
			for s := span[0]; s < span[1]; s++ {
				if err := dtype.Float32s(in, r.X.RowBytes(int(comm.Row[int32](r.Index.Row, 0)[s])), dt); err != nil {
					return err
				}
				for i := range in {
					in[i] = float32(in[i]*(0.7+float32(name))) + 0.3
				}
				if err := dtype.FromFloat32s(r.Y.RowBytes(s), in, dt); err != nil {
					return err
				}
			}
		}
		bias := []comm.Buffer{typed(b.bias[lo*h:hi*h], h, dt), typed(b.x[lo*h:hi*h], h, dt)}[:numBias]
		return x.Combine(comm.Stream{}, all.Slice(lo, hi), r.Y, r, bias...)
	})
	return all.Bytes()
}

// merged does without an exchange: every rank has all tokens, makes its partial rows, and one all-reduce merges them.
func (b batch) merged(t *testing.T) []byte {
	h, k, dt := b.cfg.Hidden, b.cfg.TopK, b.cfg.DType
	ranks := len(b.start) - 1
	place := b.cfg.WithDefaults(ranks).Placement
	all := typed(make([]float32, len(b.x)), h, dt)
	b.onRanks(t, func(_ context.Context, c *comm.Comm) error {
		partial := make([]float32, len(b.x))
		for i, e := range b.ids {
			if int(e) >= b.cfg.NumExperts {
				continue
			}
			if owner, _ := place.Owner(int(e)); owner == c.Rank() {
				for j, v := range b.expertRow(int(e), i/k) {
					partial[i/k*h+j] += float32(b.weights[i] * v)
				}
			}
		}
		mine := typed(partial, h, dt)
		if err := c.AllReduce(comm.Stream{}, mine, mine, comm.Sum); err != nil {
			return err
		}
		if c.Rank() == 0 {
			copy(all.Bytes(), mine.Bytes())
		}
		return nil
	})
	return all.Bytes()
}

// For one placement agrs, alltoall and an all-reduce of partial rows give the same bits.
func TestStrategiesAgreeToTheBit(t *testing.T) {
	for _, dt := range []dtype.DType{dtype.F32, dtype.BF16} {
		for _, perRank := range [][]int{{9}, {4, 0, 7}, {5, 5, 5, 5}, {0, 0, 3, 1, 6, 2, 0, 8}} {
			for _, roundRobin := range []bool{false, true} {
				cfg := ep.Config{NumExperts: 11, TopK: 6, Hidden: 45, MaxTokensPerRank: 9, DType: dt,
					Placement: routing.Placement{NumExperts: 11, Size: len(perRank), RoundRobin: roundRobin}}
				b := newBatch(cfg, perRank)
				agrs := b.exchange(t, "agrs", 0)
				require.Equal(t, agrs, b.exchange(t, "alltoall", 0), "%v %v", dt, perRank)
				require.Equal(t, agrs, b.merged(t), "%v %v", dt, perRank)
				for numBias := 1; numBias <= 2; numBias++ {
					require.Equal(t, b.exchange(t, "agrs", numBias), b.exchange(t, "alltoall", numBias), "%v %v, %d bias", dt, perRank, numBias)
				}
				x := make([]float32, len(b.x))
				require.NoError(t, dtype.Float32s(x, agrs, dt))
				for _, v := range x {
					require.False(t, math.IsNaN(float64(v)))
				}
			}
		}
	}
}
