package eptest

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/comm/local"
	"github.com/weftgo/weft/cuda"
	"github.com/weftgo/weft/dtype"
	"github.com/weftgo/weft/ep"
	"github.com/weftgo/weft/internal/turnstile"
)

// TestGraph captures a dispatch and a combine of four ranks into a graph each, and replays them with other rows, experts,
// weights and numbers of tokens, which are on the device. Every replay is compared with the CPU's bits.
func TestGraph(t *testing.T, create New, open Open, dev *cuda.Device) {
	graphs(t, create, open, dev, 300)
}

// TestGraphLowLatency is TestGraph with as many tokens as Config.LowLatency takes, which create sets.
func TestGraphLowLatency(t *testing.T, create New, open Open, dev *cuda.Device) {
	graphs(t, create, open, dev, ep.MaxLowLatencyTokens)
}

func graphs(t *testing.T, create New, open Open, dev *cuda.Device, most int) {
	const ranks, rounds = 4, 12
	cfg := ep.Config{NumExperts: 18, TopK: 4, Hidden: 264, MaxTokensPerRank: most, DType: dtype.BF16}
	inputs := func(round, rank int) graphInput { return newGraphInput(cfg, round, rank) }
	want := make([][rounds][]byte, ranks)
	host, err := local.Open(local.Config{Ranks: ranks, Timeout: time.Minute})
	require.NoError(t, err)
	require.NoError(t, host.Run(context.Background(), func(ctx context.Context, c *comm.Comm) error {
		x, err := create(ctx, c, cfg)
		if err != nil {
			return err
		}
		for round := range rounds {
			in := inputs(round, c.Rank())
			r, err := x.Dispatch(comm.Stream{}, in.x, ep.Routing{IDs: in.ids, Weights: in.weights, NumTokens: in.tokens})
			if err != nil {
				return err
			}
			for i := range r.Y.Rows() {
				writeRow(r.Y, i, pattern(cfg.Hidden, i, c.Rank()))
			}
			out := narrow(make([]float32, in.x.Rows()*cfg.Hidden), in.x.Rows(), cfg.Hidden, cfg.Hidden, cfg.DType)
			if err := x.Combine(comm.Stream{}, out, r.Y, r); err != nil {
				return err
			}
			want[c.Rank()][round] = packed(out.Slice(0, in.n))
		}
		return nil
	}))
	require.NoError(t, host.Close(context.Background()))
	w := open(t, ranks, 20*time.Second)
	all := turnstile.New(ranks)
	require.NoError(t, w.Run(context.Background(), func(ctx context.Context, c *comm.Comm) error {
		x, err := create(ctx, c, cfg)
		if err != nil {
			return err
		}
		got, err := replays(ctx, c, x, dev, inputs, rounds, all)
		for round := range got {
			if n := differ(want[c.Rank()][round], got[round]); n >= 0 {
				t.Errorf("rank %d round %d differs at byte %d of %d", c.Rank(), round, n, len(want[c.Rank()][round]))
			}
		}
		return errors.Join(err, x.Close(ctx))
	}))
	require.NoError(t, w.Close(context.Background()))
}

// graphInput is what one rank dispatches in one round: buffers of the host with room for the most tokens.
type graphInput struct {
	n                       int
	x, ids, weights, tokens comm.Buffer
}

func newGraphInput(cfg ep.Config, round, rank int) graphInput {
	rng := rand.New(rand.NewPCG(uint64(round), uint64(rank)))
	most := cfg.MaxTokensPerRank
	in := graphInput{n: []int{most, 1, 0, 7, min(257, most), rng.IntN(most)}[(round+rank)%6]}
	if round%6 == 2 {
		in.n = 0 // on all ranks
	}
	x, ids, w := make([]float32, most*cfg.Hidden), make([]int32, most*cfg.TopK), make([]float32, most*cfg.TopK)
	for i := range x {
		x[i] = float32(rng.NormFloat64())
	}
	for i := range ids {
		ids[i], w[i] = int32(rng.IntN(cfg.NumExperts+1)), rng.Float32()
	}
	in.x = narrow(x, most, cfg.Hidden, cfg.Hidden, cfg.DType)
	in.ids, in.weights, in.tokens = comm.Of(ids, cfg.TopK), comm.Of(w, cfg.TopK), comm.Of([]int32{int32(in.n)}, 1)
	return in
}

// pattern is row i of a rank's expert outputs.
func pattern(hidden, i, rank int) []float32 {
	y := make([]float32, hidden)
	for j := range y {
		y[j] = float32((i*31+j*7+rank*1000)%1013) * 0.37
	}
	return y
}

// replays captures once and returns what each round's replay gave.
func replays(ctx context.Context, c *comm.Comm, x ep.Exchanger, dev *cuda.Device, inputs func(round, rank int) graphInput, rounds int,
	all *turnstile.Turnstile) (got [][]byte, err error) {
	cfg := x.Config()
	st, err := dev.NewStream(0)
	if err != nil {
		return nil, err
	}
	s := comm.Stream{Handle: st.Handle()}
	on := &remote{Exchanger: x, c: c}
	var used []comm.Buffer
	in := inputs(0, c.Rank())
	var near, far [4]comm.Buffer
	near = [4]comm.Buffer{in.x, in.ids, in.weights, in.tokens}
	for i, b := range near {
		if far[i], err = on.up(b, &used); err != nil {
			return nil, err
		}
	}
	out, err := on.up(in.x, &used)
	if err != nil {
		return nil, err
	}
	var r *ep.Received
	g, err := st.Capture(func() error {
		if r, err = x.Dispatch(s, far[0], ep.Routing{IDs: far[1], Weights: far[2], NumTokens: far[3]}); err != nil {
			return err
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	y := r.Y
	g2, err := st.Capture(func() error { return x.Combine(s, out, r.Y, r) })
	if err != nil {
		return nil, err
	}
	first, err := g.Instantiate()
	if err != nil {
		return nil, err
	}
	second, err := g2.Instantiate()
	if err != nil {
		return nil, err
	}
	var rows []float32
	for i := range y.Rows() {
		rows = append(rows, pattern(cfg.Hidden, i, c.Rank())...)
	}
	if err := comm.Copy(c, comm.Stream{}, y, narrow(rows, y.Rows(), cfg.Hidden, cfg.Hidden, cfg.DType)); err != nil {
		return nil, err
	}
	all.Pass() // making graphs may wait for kernels that wait for other ranks
	for round := range rounds {
		in := inputs(round, c.Rank())
		for i, b := range []comm.Buffer{in.x, in.ids, in.weights, in.tokens} {
			if err := comm.Copy(c, s, far[i], b); err != nil {
				return got, err
			}
		}
		if err := errors.Join(first.Launch(st), second.Launch(st), c.Wait(ctx, s)); err != nil {
			return got, err
		}
		h, err := on.down(out.Slice(0, in.n))
		if err != nil {
			return got, err
		}
		got = append(got, packed(h))
	}
	all.Pass()
	on.free(used)
	return got, errors.Join(g.Close(), g2.Close(), first.Close(), second.Close(), st.Close())
}
