package exchange

import (
	"bytes"
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/weftgo/weft"
	"github.com/weftgo/weft/benchmarks/suite"
	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/ep"
	"github.com/weftgo/weft/moe"
)

// Layer measures a forward pass of the whole layer (router, dispatch, experts, combine), every rank with tokens of its own.
//
// The check compares every bit with the layer that needs no exchanger: all tokens on all ranks, whole experts, one
// all-reduce. With an fp8 wire, which rounds, nothing is compared.
func Layer(ctx context.Context, w *comm.World, s Setup, t suite.Timing, checks int) (Result, error) {
	if err := s.Validate(); err != nil {
		return Result{}, err
	}
	if s.Hidden < s.Experts {
		return Result{}, fmt.Errorf("hidden %d < %d experts: the benchmark's router reads one logit from each of the first values of a token",
			s.Hidden, s.Experts)
	}
	for _, c := range w.Local() {
		if dev := c.Device(); dev.Kind != comm.CPU {
			return Result{}, comm.Errorf("moe_layer", c.Rank(), comm.Unavailable,
				"experts compute on the host, not on %v; with --driver staged their collectives run there", dev)
		}
	}
	m := &layerMeter{problem: newProblem(s), clock: newClock(w.Size()), timing: t}
	if checks > 0 && !s.FP8 {
		m.want = make([]byte, before(s.Tokens, len(s.Tokens))*s.combineBytes())
		if err := w.Run(ctx, m.reference); err != nil {
			return Result{}, fmt.Errorf("moe_layer: reference: %w", err)
		}
	}
	if err := w.Run(ctx, m.rank); err != nil {
		return Result{}, fmt.Errorf("moe_layer: %s: %w", s.Backend, err)
	}
	r := m.columns("moe_layer", m.clock, s)
	if r.Wrong = m.wrong.Load(); m.want == nil {
		r.Wrong = -1
	}
	return r, nil
}

type layerMeter struct {
	*problem
	clock  *clock
	timing suite.Timing
	iters  atomic.Int64
	wrong  atomic.Int64
	want   []byte // the outputs of all ranks, in rank order
	traffic
}

// layerConfig is the layer spread over data-parallel ranks, or, for the reference, over ranks that all have all tokens.
func (m *layerMeter) layerConfig(parallel moe.Parallel, tokens int) moe.Config {
	return moe.Config{Hidden: m.Hidden, NumExperts: m.Experts, TopK: m.TopK, Intermediate: m.Intermediate, Renormalize: true,
		MaxTokens: max(1, tokens), Parallel: parallel}
}

// reference runs all tokens through the layer without an exchanger.
func (m *layerMeter) reference(ctx context.Context, c *comm.Comm) error {
	cfg := m.layerConfig(moe.Parallel{TP: c.Size(), DP: 1, EP: true}, before(m.Tokens, len(m.Tokens)))
	l, err := moe.New(ctx, c, cfg, m.weightsOf(cfg, c.Rank()), nil)
	if err != nil {
		return err
	}
	var all []float32
	for r := range m.Tokens {
		all = append(all, m.states(r)...)
	}
	in, err := typed(all, m.Hidden, m.Type)
	if err != nil {
		return err
	}
	out, err := typed(make([]float32, len(all)), m.Hidden, m.Type)
	if err != nil {
		return err
	}
	if err := l.Forward(comm.Stream{}, out, in); err != nil {
		return err
	}
	if c.Rank() == 0 {
		copy(m.want, out.Bytes())
	}
	return nil
}

// rank times one rank's layer and compares its last output.
func (m *layerMeter) rank(ctx context.Context, c *comm.Comm) error {
	cfg := m.layerConfig(moe.Parallel{TP: 1, DP: c.Size(), EP: true}, m.config().MaxTokensPerRank)
	var x ep.Exchanger
	if cfg.Parallel.UseExchange() {
		exchange := cfg.Exchange()
		exchange.Wire = m.config().Wire
		var err error
		if x, err = weft.NewExchanger(ctx, c, m.Backend, exchange); err != nil {
			return err
		}
		defer x.Close(ctx)
	}
	l, err := moe.New(ctx, c, cfg, m.weightsOf(cfg, c.Rank()), x)
	if err != nil {
		return err
	}
	in, err := typed(m.states(c.Rank()), m.Hidden, m.Type)
	if err != nil {
		return err
	}
	out, err := typed(make([]float32, m.Tokens[c.Rank()]*m.Hidden), m.Hidden, m.Type)
	if err != nil {
		return err
	}
	forward := func() error { return l.Forward(comm.Stream{}, out, in) }
	start := time.Now()
	if err := forward(); err != nil {
		return err
	}
	if c.Rank() == 0 {
		m.iters.Store(int64(m.timing.Choose(time.Since(start))))
		m.name = "none"
		if x != nil {
			m.name = x.Name()
		}
	}
	if err := c.Barrier(comm.Stream{}); err != nil {
		return err
	}
	start0 := stats(x)
	poison(out)
	for range int(m.iters.Load()) {
		if err := m.clock.time(ctx, c, forward); err != nil {
			return err
		}
	}
	m.add(start0, stats(x))
	m.compare(out, c.Rank())
	return nil
}

// compare counts the elements whose bits differ from the reference.
func (m *layerMeter) compare(out comm.Buffer, rank int) {
	if m.want == nil || out.Rows() == 0 {
		return
	}
	got, width := out.Bytes(), m.Type.Size()
	want := m.want[before(m.Tokens, rank)*m.combineBytes():]
	for i := 0; i < len(got); i += width {
		if !bytes.Equal(got[i:i+width], want[i:i+width]) {
			m.wrong.Add(1)
		}
	}
}

// states makes the tokens of a rank so that the router chooses what the problem says: the first Experts values are the
// logits, high for the chosen experts; the rest is noise.
func (m *layerMeter) states(rank int) []float32 {
	x := make([]float32, m.Tokens[rank]*m.Hidden)
	for i := range x {
		x[i] = noise(m.Seed^uint64(rank+1), uint64(i))
	}
	for t := range m.Tokens[rank] {
		for k, e := range m.ids[rank][t*m.TopK : (t+1)*m.TopK] {
			x[t*m.Hidden+int(e)] = 4 + float32(m.TopK-k)/float32(m.TopK)
		}
	}
	return x
}

// weightsOf makes what a rank of a layout holds. An expert is a function of its number, so that all layouts agree.
func (m *layerMeter) weightsOf(cfg moe.Config, rank int) moe.Weights {
	router := make([]float32, m.Experts*m.Hidden)
	for e := range m.Experts {
		router[e*m.Hidden+e] = 1
	}
	return moe.Weights{Router: router, Expert: func(local int) (moe.Expert, error) {
		e := uint64(cfg.LocalExpert(rank, local))
		w := func(part uint64) []float32 {
			x := make([]float32, m.Intermediate*m.Hidden)
			for i := range x {
				x[i] = noise(e*3+part+1000, uint64(i))
			}
			return x
		}
		return moe.Expert{Gate: w(0), Up: w(1), Down: w(2)}, nil
	}}
}

// noise is a number in [-1/8, 1/8).
func noise(a, b uint64) float32 { return float32(int64(hash(a, b, 3)>>40)-1<<23) / (1 << 26) }

func before(counts []int, i int) int {
	sum := 0
	for _, n := range counts[:i] {
		sum += n
	}
	return sum
}
