// Command moelayer runs one Mixture-of-Experts layer on several ranks of this process, in each way that the ranks can share
// it, and compares the results:
//
//	go run ./examples/moelayer -ranks 8 -tokens 1000
//	go run ./examples/moelayer -devices cuda:0x8
//
// With GPUs, each layout runs a second time with its collectives there and must give the same bits: the sums of both drivers are
// taken in the same order. The router, the experts and the sums of an exchanger still run on the host.
//
// Copy forward: it is all that a program needs to run a layer of its own weights.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"time"

	"github.com/weftgo/weft"
	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/ep"
	"github.com/weftgo/weft/moe"
)

// layer is the shape of the example: 16 experts of which a token visits 4, and a shared expert for all tokens.
var layer = moe.Config{Hidden: 128, NumExperts: 16, TopK: 4, Intermediate: 96, Renormalize: true, SharedIntermediate: 64}

func main() {
	ranks := flag.Int("ranks", 8, "how many ranks share the layer")
	tokens := flag.Int("tokens", 1000, "how many tokens go through it")
	devices := flag.String("devices", "", "GPUs that run the collectives too, one for each rank, such as cuda:0x8 or cuda:0-7")
	flag.Parse()
	if err := run(os.Stdout, *ranks, *tokens, *devices); err != nil {
		fmt.Fprintln(os.Stderr, "moelayer:", err)
		os.Exit(1)
	}
}

// run prints one paragraph for each layout, and one more for each that runs with GPUs.
func run(out io.Writer, ranks, tokens int, devices string) error {
	if ranks < 1 || tokens < 0 {
		return comm.Errorf("open", 0, comm.Invalid, "-ranks %d and -tokens %d: use at least 1 rank and 0 tokens", ranks, tokens)
	}
	onGPUs := weft.Config{Ranks: ranks, Devices: devices, Driver: "staged"}
	if devices != "" { // rather than after two layouts
		if err := try(context.Background(), onGPUs); err != nil {
			return err
		}
	}
	model, x := newModel(), normal(rand.New(rand.NewPCG(1, 1)), tokens*layer.Hidden, 1)
	layouts := []struct {
		parallel  moe.Parallel
		exchanger string // "" where none is needed
	}{
		{moe.Parallel{TP: 1, DP: 1}, ""},                       // one rank has everything
		{moe.Parallel{TP: ranks, DP: 1}, ""},                   // a slice of every expert on each rank
		{moe.Parallel{TP: ranks, DP: 1, EP: true}, ""},         // whole experts, all tokens everywhere
		{moe.Parallel{TP: 1, DP: ranks}, ""},                   // slices, but tokens of its own on each rank
		{moe.Parallel{TP: 1, DP: ranks, EP: true}, "agrs"},     // whole experts and own tokens: gather everything
		{moe.Parallel{TP: 1, DP: ranks, EP: true}, "alltoall"}, // ... or send each token to its experts only
	}
	var first []float32
	for _, l := range layouts {
		cfg := layer
		cfg.Parallel = l.parallel
		cfg.MaxTokens = max(1, tokens) // the most that one rank passes
		if l.exchanger != "" && !l.parallel.UseExchange() {
			continue // one rank needs no exchanger
		}
		result, err := forward(context.Background(), out, weft.Config{Ranks: l.parallel.Size()}, cfg, model, l.exchanger, x)
		if err != nil {
			return err
		}
		if first == nil {
			first = result
		}
		worst := 0.0
		for i, v := range result {
			worst = max(worst, math.Abs(float64(v-first[i])))
		}
		fmt.Fprintf(out, "  largest difference to one rank %.1e\n", worst)
		if !(worst < 1e-3) {
			return fmt.Errorf("%v differs from one rank by %v", l.parallel, worst)
		}
		if devices == "" || l.parallel.Size() < ranks {
			continue // one rank has nobody to exchange with
		}
		onGPU, err := forward(context.Background(), out, onGPUs, cfg, model, l.exchanger, x)
		if err != nil {
			return err
		}
		if i := differs(result, onGPU); i >= 0 {
			return fmt.Errorf("%v with collectives on %s: element %d is %v, on the CPU %v", l.parallel, devices, i, onGPU[i], result[i])
		}
		fmt.Fprintf(out, "  with collectives on %s: all %d elements have the bits of the CPU; router, experts and an exchanger's sums ran on the host\n", devices, len(onGPU))
	}
	return nil
}

// try opens a world and closes it, to see whether it can be had.
func try(ctx context.Context, where weft.Config) error {
	world, err := weft.Open(ctx, where)
	if err != nil {
		return err
	}
	return world.Close(ctx)
}

// differs returns the first element whose bits differ, or -1.
func differs(a, b []float32) int {
	for i := range a {
		if math.Float32bits(a[i]) != math.Float32bits(b[i]) {
			return i
		}
	}
	return -1
}

// forward spreads the layer over a world of ranks, runs x [numTokens, hidden] through it and returns all rows.
func forward(ctx context.Context, out io.Writer, where weft.Config, cfg moe.Config, m *model, exchangerName string, x []float32) ([]float32, error) {
	world, err := weft.Open(ctx, where)
	if err != nil {
		return nil, err
	}
	defer world.Close(ctx)
	result := make([]float32, len(x))
	err = world.Run(ctx, func(ctx context.Context, c *comm.Comm) error {
		var exchanger ep.Exchanger
		if cfg.Parallel.UseExchange() {
			var err error
			if exchanger, err = weft.NewExchanger(ctx, c, exchangerName, cfg.Exchange()); err != nil {
				return err
			}
			defer exchanger.Close(ctx)
		}
		l, err := moe.New(ctx, c, cfg, m.weights(cfg, c.Rank()), exchanger)
		if err != nil {
			return err
		}
		// With dp = 1 all ranks pass all rows, else each its own: here an even share.
		lo, hi := 0, len(x)/cfg.Hidden
		y := make([]float32, len(x))
		if cfg.Parallel.DP > 1 {
			lo, hi = moe.Share(hi, c.Size(), c.Rank())
			y = result[lo*cfg.Hidden : hi*cfg.Hidden]
		} else if c.Rank() == 0 {
			y = result
		}
		before, start := c.Stats(), time.Now()
		if err := l.Forward(comm.Stream{}, comm.Of(y, cfg.Hidden), comm.Of(x[lo*cfg.Hidden:hi*cfg.Hidden], cfg.Hidden)); err != nil {
			return err
		}
		if c.Rank() == 0 {
			sum := c.Stats().Sub(before).Total()
			fmt.Fprintf(out, "%v\n  rank 0: %d collectives, %.1f kB sent, %v\n", l, sum.Calls, float64(sum.SentBytes)/1e3,
				time.Since(start).Round(10*time.Microsecond))
		}
		return nil
	})
	return result, err
}
