package alltoall_test

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/comm/local"
	"github.com/weftgo/weft/dtype"
	"github.com/weftgo/weft/ep"
)

// job is a batch of all tokens, to be cut among any number of ranks.
type job struct {
	cfg     ep.Config
	x, bias []float32 // [numTokens, hidden], exact in DType
	ids     []int32
	weights []float32
}

func newJob(numTokens int, cfg ep.Config) job {
	rng := rand.New(rand.NewPCG(1, 2))
	j := job{cfg: cfg}
	for range numTokens * cfg.Hidden {
		j.x = append(j.x, rounded(float32(rng.NormFloat64()), cfg.DType))
		j.bias = append(j.bias, rounded(float32(rng.NormFloat64()), cfg.DType))
	}
	for range numTokens * cfg.TopK {
		j.ids = append(j.ids, int32(rng.IntN(cfg.NumExperts+1))) // one id in NumExperts+1 is outside
		j.weights = append(j.weights, rng.Float32())
	}
	return j
}

func rounded(f float32, t dtype.DType) float32 {
	switch t {
	case dtype.BF16:
		return dtype.ToBFloat16(f).Float32()
	case dtype.F16:
		return dtype.ToFloat16(f).Float32()
	}
	return f
}

func narrow(x []float32, cols int, t dtype.DType) comm.Buffer {
	switch t {
	case dtype.BF16:
		y := make([]dtype.BFloat16, len(x))
		for i, v := range x {
			y[i] = dtype.ToBFloat16(v)
		}
		return comm.Of(y, cols)
	case dtype.F16:
		y := make([]dtype.Float16, len(x))
		for i, v := range x {
			y[i] = dtype.ToFloat16(v)
		}
		return comm.Of(y, cols)
	}
	return comm.Of(append([]float32{}, x...), cols)
}

// expert is a function whose sums round.
func expert(e int, x float32) float32 { return float32(x*(0.3+float32(e))) + 0.1 }

// run cuts the job among ranks by first-token offsets and returns out [numTokens, hidden].
func (j job) run(t *testing.T, cuts []int) []float32 {
	ranks, h, k := len(cuts)-1, j.cfg.Hidden, j.cfg.TopK
	w, err := local.Open(local.Config{Ranks: ranks})
	require.NoError(t, err)
	all := make([]float32, len(j.x))
	err = w.Run(context.Background(), func(ctx context.Context, c *comm.Comm) error {
		x, err := create(ctx, c, j.cfg)
		if err != nil {
			return err
		}
		lo, hi := cuts[c.Rank()], cuts[c.Rank()+1]
		r, err := x.Dispatch(comm.Stream{}, narrow(j.x[lo*h:hi*h], h, j.cfg.DType),
			ep.Routing{IDs: comm.Of(j.ids[lo*k:hi*k], k), Weights: comm.Of(j.weights[lo*k:hi*k], k)})
		if err != nil {
			return err
		}
		rows, err := comm.View[int32](r.Index.Row)
		if err != nil {
			return err
		}
		row := make([]float32, h)
		for e, span := range r.Experts(ctx) {
			name := x.Config().Placement.LogicalOf(c.Rank(), e)
			for s := span[0]; s < span[1]; s++ {
				if err := dtype.Float32s(row, r.X.RowBytes(int(rows[s])), j.cfg.DType); err != nil {
					return err
				}
				for i := range row {
					row[i] = expert(name, row[i])
				}
				if err := dtype.FromFloat32s(r.Y.RowBytes(s), row, j.cfg.DType); err != nil {
					return err
				}
			}
		}
		out, b := narrow(make([]float32, (hi-lo)*h), h, j.cfg.DType), narrow(j.bias[lo*h:hi*h], h, j.cfg.DType)
		if err := x.Combine(comm.Stream{}, out, r.Y, r, b, b); err != nil {
			return err
		}
		return dtype.Float32s(all[lo*h:hi*h], out.Bytes(), j.cfg.DType)
	})
	require.NoError(t, err)
	require.NoError(t, w.Close(context.Background()))
	return all
}

// want is the sum over a token's choices in k order, in fp32, then bias twice, rounded once.
func (j job) want() []float32 {
	h, k := j.cfg.Hidden, j.cfg.TopK
	out := make([]float32, len(j.x))
	for i := range out {
		token := i / h
		sum := float32(0)
		for n := token * k; n < (token+1)*k; n++ {
			if int(j.ids[n]) < j.cfg.NumExperts {
				sum += float32(j.weights[n] * rounded(expert(int(j.ids[n]), j.x[i]), j.cfg.DType))
			}
		}
		sum += j.bias[i]
		sum += j.bias[i]
		out[i] = rounded(sum, j.cfg.DType)
	}
	return out
}

// The same tokens cut among 1 to 8 ranks, evenly or not, give the same bits, and those of plain loops.
func TestRankInvariant(t *testing.T) {
	for _, dt := range []dtype.DType{dtype.F32, dtype.BF16, dtype.F16} {
		j := newJob(24, ep.Config{NumExperts: 11, TopK: 5, Hidden: 37, MaxTokensPerRank: 24, DType: dt, RankInvariant: true, Alignment: 4})
		want := j.want()
		for ranks := 1; ranks <= 8; ranks++ {
			even, odd := []int{0}, []int{0}
			for r := 1; r <= ranks; r++ {
				even = append(even, 24*r/ranks)
				odd = append(odd, 24*r*r/ranks/ranks)
			}
			require.Equal(t, want, j.run(t, even), "%v, %d ranks", dt, ranks)
			require.Equal(t, want, j.run(t, odd), "%v, %d ranks, uneven", dt, ranks)
		}
	}
}

// Without RankInvariant bits do depend on the number of ranks: the test above can fail.
func TestPartialSumsDependOnRanks(t *testing.T) {
	j := newJob(24, ep.Config{NumExperts: 11, TopK: 5, Hidden: 37, MaxTokensPerRank: 24, DType: dtype.BF16})
	require.NotEqual(t, j.run(t, []int{0, 24}), j.run(t, []int{0, 6, 12, 18, 24}))
}

func TestFiftyRunsAreEqual(t *testing.T) {
	j := newJob(24, ep.Config{NumExperts: 11, TopK: 5, Hidden: 37, MaxTokensPerRank: 24, DType: dtype.F32})
	cuts := []int{0, 5, 5, 17, 24}
	first := j.run(t, cuts)
	for range 49 {
		require.Equal(t, first, j.run(t, cuts))
	}
}
