package twolevel_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/alltoall"
	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/comm/local"
	"github.com/weftgo/weft/dtype"
	"github.com/weftgo/weft/ep"
)

// job is one exchange of all ranks, of values whose sums round.
type job struct {
	cfg     ep.Config
	tokens  []int // of each rank
	numBias int
	x, bias [][]float32 // [rank][numTokens, hidden], exact in DType
	ids     [][]int32
	weights [][]float32
}

func newJob(cfg ep.Config, seed uint64, numBias int, tokens ...int) job {
	j := job{cfg: cfg, tokens: tokens, numBias: numBias}
	for r, n := range tokens {
		j.cfg.MaxTokensPerRank = max(j.cfg.MaxTokensPerRank, n)
		rng := rand.New(rand.NewPCG(seed, uint64(r)))
		var x, bias, w []float32
		var ids []int32
		for range n * cfg.Hidden {
			x, bias = append(x, as(float32(rng.NormFloat64()), cfg.DType)), append(bias, as(float32(rng.NormFloat64()), cfg.DType))
		}
		for range n * cfg.TopK {
			ids, w = append(ids, int32(rng.IntN(cfg.NumExperts+1))), append(w, rng.Float32()) // one id in NumExperts+1 is outside
		}
		j.x, j.bias, j.ids, j.weights = append(j.x, x), append(j.bias, bias), append(j.ids, ids), append(j.weights, w)
	}
	return j
}

// as is f as the type holds it.
func as(f float32, t dtype.DType) float32 {
	switch t {
	case dtype.BF16:
		return dtype.ToBFloat16(f).Float32()
	case dtype.F16:
		return dtype.ToFloat16(f).Float32()
	}
	return f
}

// buffer holds x in type t.
func buffer(x []float32, cols int, t dtype.DType) comm.Buffer {
	raw := make([]int64, (len(x)*t.Size()+7)/8+1)
	b := comm.OfBytes(comm.Of(raw, 1).Bytes(), t, len(x)/cols, cols)
	if err := dtype.FromFloat32s(b.Bytes(), x, t); err != nil {
		panic(err)
	}
	return b
}

func widen(b comm.Buffer, i int) []float32 {
	x := make([]float32, b.Cols())
	if err := dtype.Float32s(x, b.RowBytes(i), b.DType()); err != nil {
		panic(err)
	}
	return x
}

// expert is a function whose results round.
func expert(e int, x float32) float32 { return float32(x*(0.3+float32(e))) + 0.1 }

// outcome is what one rank had.
type outcome struct {
	got   map[string][]byte // what was received
	out   []byte
	stats ep.Stats
	err   error // of Dispatch
}

func packed(b comm.Buffer) (x []byte) {
	for i := range b.Rows() {
		x = append(x, b.RowBytes(i)...)
	}
	return x
}

// one is one rank's part on an exchanger.
func (j job) one(ctx context.Context, rank int, x ep.Exchanger) (outcome, error) {
	cfg := x.Config()
	in := buffer(j.x[rank], cfg.Hidden, cfg.DType)
	r, err := x.Dispatch(comm.Stream{}, in, ep.Routing{IDs: comm.Of(j.ids[rank], cfg.TopK), Weights: comm.Of(j.weights[rank], cfg.TopK)})
	if err != nil {
		return outcome{err: err}, nil
	}
	o := outcome{got: map[string][]byte{"x": packed(r.X), "row": packed(r.Index.Row), "k": packed(r.Index.K), "weight": packed(r.Index.Weight),
		"counts": packed(r.Index.Counts), "offsets": packed(r.Index.Offsets), "dropped": packed(r.Dropped), "rows": packed(r.NumRows)}}
	if !r.Scales.IsZero() {
		o.got["scales"] = packed(r.Scales)
	}
	j.experts(ctx, cfg, rank, r)
	out := buffer(make([]float32, len(j.x[rank])), cfg.Hidden, cfg.DType)
	bias := []comm.Buffer{buffer(j.bias[rank], cfg.Hidden, cfg.DType), in}[:j.numBias]
	if err := x.Combine(comm.Stream{}, out, r.Y, r, bias...); err != nil {
		return o, err
	}
	o.out, o.stats = packed(out), x.(ep.Meter).Stats()
	return o, nil
}

// experts writes r.Y.
func (j job) experts(ctx context.Context, cfg ep.Config, rank int, r *ep.Received) {
	partial := map[int][][]float32{} // [row][k]
	for e, span := range r.Experts(ctx) {
		for s := span[0]; s < span[1]; s++ {
			row, at := int(comm.Row[int32](r.Index.Row, 0)[s]), s
			if cfg.Layout == ep.Rows {
				at = row
			}
			y := widen(r.X, at)
			for i := range y {
				if !r.Scales.IsZero() {
					y[i] = as(y[i]*comm.Row[float32](r.Scales, at)[i/ep.ScaleGroup], cfg.DType)
				}
				y[i] = as(expert(cfg.Placement.LogicalOf(rank, e), y[i]), cfg.DType)
			}
			if cfg.Output == ep.ExpertRows {
				copy(r.Y.RowBytes(s), buffer(y, cfg.Hidden, cfg.DType).Bytes())
				continue
			}
			if partial[row] == nil {
				partial[row] = make([][]float32, cfg.TopK)
			}
			for i := range y {
				y[i] = float32(comm.Row[float32](r.Index.Weight, 0)[s] * y[i])
			}
			partial[row][comm.Row[int32](r.Index.K, 0)[s]] = y
		}
	}
	for row, terms := range partial {
		sum := make([]float32, cfg.Hidden)
		for _, y := range terms {
			for i := range y {
				sum[i] += y[i]
			}
		}
		copy(r.Y.RowBytes(row), buffer(sum, cfg.Hidden, cfg.DType).Bytes())
	}
}

// run does the job twice on every rank, so that memory is used again.
func (j job) run(t *testing.T, w *comm.World, create func(ctx context.Context, c *comm.Comm, cfg ep.Config) (ep.Exchanger, error)) []outcome {
	t.Helper()
	all := make([]outcome, w.Size())
	require.NoError(t, w.Run(context.Background(), func(ctx context.Context, c *comm.Comm) error {
		x, err := create(ctx, c, j.cfg)
		if err != nil {
			return err
		}
		for range 2 {
			if all[c.Rank()], err = j.one(ctx, c.Rank(), x); err != nil {
				return err
			}
		}
		return x.Close(ctx)
	}))
	require.NoError(t, w.Close(context.Background()))
	return all
}

// oneNode does the job with package alltoall on as many ranks.
func (j job) oneNode(t *testing.T) []outcome {
	w, err := local.Open(local.Config{Ranks: len(j.tokens)})
	require.NoError(t, err)
	return j.run(t, w, func(ctx context.Context, c *comm.Comm, cfg ep.Config) (ep.Exchanger, error) {
		return alltoall.New(ctx, c, cfg)
	})
}

func (j job) between(t *testing.T, numNodes int) []outcome {
	return j.run(t, open(t, numNodes, len(j.tokens)/numNodes, 0), create)
}

// owner says which rank has an expert, for blocks of experts of which the first are one longer: by counting.
func owner(e, numExperts, size int) int {
	for r := range size {
		n := numExperts / size
		if r < numExperts%size {
			n++
		}
		if e < n {
			return r
		}
		e -= n
	}
	return -1
}

// want is a rank's output in the two-level order, by plain loops: ranks in k order, rounded; nodes in rank order, rounded; the source
// in node order, then bias, rounded. keep, when not nil, says whether a (token, rank) pair was sent.
func (j job) want(numNodes, rank int, keep func(token, dst int) bool) []byte {
	h, k, dt, size := j.cfg.Hidden, j.cfg.TopK, j.cfg.DType, len(j.tokens)
	out := make([]float32, len(j.x[rank]))
	for i := range out {
		token, total := i/h, float32(0)
		for n := range numNodes {
			node := float32(0)
			for r := n * (size / numNodes); r < (n+1)*(size/numNodes); r++ {
				partial := float32(0)
				for c := token * k; c < (token+1)*k; c++ {
					e := int(j.ids[rank][c])
					if e < j.cfg.NumExperts && owner(e, j.cfg.NumExperts, size) == r && (keep == nil || keep(token, r)) {
						partial += float32(j.weights[rank][c] * as(expert(e, j.x[rank][i]), dt))
					}
				}
				node += as(partial, dt)
			}
			total += as(node, dt)
		}
		if j.numBias > 0 {
			total += j.bias[rank][i]
		}
		if j.numBias > 1 {
			total += j.x[rank][i]
		}
		out[i] = total
	}
	return packed(buffer(out, h, dt))
}

func same(t *testing.T, want, got outcome, rank int) {
	t.Helper()
	require.Len(t, got.got, len(want.got))
	for name, b := range want.got {
		require.Equal(t, b, got.got[name], "rank %d: %s", rank, name)
	}
}

// shapes are [nodes, ranks of a node].
func shapes() [][2]int { return [][2]int{{2, 1}, {2, 2}, {2, 4}, {3, 2}, {4, 2}, {1, 3}} }

// ragged is up to n tokens a rank, and none on some.
func ragged(size, n int) (tokens []int) {
	for r := range size {
		tokens = append(tokens, []int{n, 0, n / 2, 1, n - 1}[r%5])
	}
	return tokens
}

func (j job) String() string {
	return fmt.Sprintf("%v %v %v wire %v bias %d tokens %v", j.cfg.DType, j.cfg.Layout, j.cfg.Output, j.cfg.Wire, j.numBias, j.tokens)
}
