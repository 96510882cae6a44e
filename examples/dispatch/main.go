// Command dispatch shows expert parallelism around a user's own expert function: eight ranks in one process, each with a
// batch of tokens and a share of the experts. Every token is sent to the ranks that own the experts it chose, passes
// through myExpert there, and the weighted sum comes back.
//
//	go run ./examples/dispatch
//	go run ./examples/dispatch -ranks 3 -exchanger agrs -tokens 100
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"

	"github.com/weftgo/weft"
	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/ep"
)

// settings are the flags.
type settings struct {
	ranks, tokens, hidden, experts, topK int
	exchanger                            string
}

func main() {
	var s settings
	flag.IntVar(&s.ranks, "ranks", 8, "ranks, all of this process")
	flag.IntVar(&s.tokens, "tokens", 16, "tokens on each rank")
	flag.IntVar(&s.hidden, "hidden", 64, "values per token")
	flag.IntVar(&s.experts, "experts", 32, "experts, spread over the ranks")
	flag.IntVar(&s.topK, "topk", 4, "experts a token chooses")
	flag.StringVar(&s.exchanger, "exchanger", "auto", "agrs, alltoall, auto, or a name of vLLM's")
	flag.Parse()
	if err := run(context.Background(), os.Stdout, s); err != nil {
		fmt.Fprintln(os.Stderr, "dispatch:", err)
		os.Exit(1)
	}
}

// tokens is one rank's batch, as a model's router would hand it over.
type tokens struct {
	x       []float32 // [numTokens, hidden]
	ids     []int32   // [numTokens, topK]
	weights []float32 // [numTokens, topK]
}

// route makes a rank's batch: random values, distinct random experts, and weights that sum to one.
func route(s settings, rank int) tokens {
	if s.topK > s.experts {
		s.topK = s.experts
	}
	rng := rand.New(rand.NewPCG(2024, uint64(rank)))
	t := tokens{x: make([]float32, s.tokens*s.hidden)}
	for i := range t.x {
		t.x[i] = rng.Float32()
	}
	for range s.tokens {
		for _, e := range rng.Perm(s.experts)[:s.topK] {
			t.ids = append(t.ids, int32(e))
			t.weights = append(t.weights, 1/float32(s.topK))
		}
	}
	return t
}

// myExpert is yours: it reads the rows of x [numRows, hidden] and writes as many rows of y.
func myExpert(expert int, y, x comm.Buffer) {
	for i := range x.Rows() {
		in, out := comm.Row[float32](x, i), comm.Row[float32](y, i)
		for j := range in {
			out[j] = float32(expert+1) * in[j]
		}
	}
}

// layer sends a rank's tokens through all experts of all ranks and writes out [numTokens, hidden].
func layer(ctx context.Context, ex ep.Exchanger, rank int, out []float32, t tokens) error {
	cfg, s := ex.Config(), comm.Stream{}
	r, err := ex.Dispatch(s, comm.Of(t.x, cfg.Hidden),
		ep.Routing{IDs: comm.Of(t.ids, cfg.TopK), Weights: comm.Of(t.weights, cfg.TopK)})
	if err != nil {
		return err
	}
	for e, slot := range r.Experts(ctx) {
		myExpert(cfg.Placement.LogicalOf(rank, e), r.Y.Slice(slot[0], slot[1]), r.X.Slice(slot[0], slot[1]))
	}
	return ex.Combine(s, comm.Of(out, cfg.Hidden), r.Y, r)
}

// run opens the ranks, sends one batch through the layer and prints what each rank did.
func run(ctx context.Context, w io.Writer, s settings) error {
	if s.ranks < 1 || s.tokens < 0 {
		return comm.Errorf("open", 0, comm.Invalid, "-ranks %d and -tokens %d: use at least 1 rank and 0 tokens", s.ranks, s.tokens)
	}
	world, err := weft.Open(ctx, weft.Config{Ranks: s.ranks})
	if err != nil {
		return err
	}
	defer func() { _ = world.Close(ctx) }()
	lines := make([]string, s.ranks)
	err = world.Run(ctx, func(ctx context.Context, c *comm.Comm) error {
		ex, err := weft.NewExchanger(ctx, c, s.exchanger, ep.Config{NumExperts: s.experts, TopK: min(s.topK, s.experts),
			Hidden: s.hidden, MaxTokensPerRank: max(1, s.tokens), Layout: ep.Expanded})
		if err != nil {
			return err
		}
		t := route(s, c.Rank())
		out := make([]float32, len(t.x))
		if err := layer(ctx, ex, c.Rank(), out, t); err != nil {
			return err
		}
		stats := ex.(ep.Meter).Stats()
		lines[c.Rank()] = fmt.Sprintf("rank %d (%s): %d tokens, %.2f copies a token, %d rows for its %d experts, out begins with %.4f",
			c.Rank(), ex.Name(), stats.NumTokens, float64(stats.NumCopies)/float64(max(stats.NumTokens, 1)),
			stats.NumSlots, len(stats.ExpertTokens), out[:min(1, len(out))])
		return ex.Close(ctx)
	})
	if err != nil {
		return err
	}
	for _, line := range lines {
		fmt.Fprintln(w, line)
	}
	return nil
}
