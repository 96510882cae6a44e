package eptest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/comm/local"
	"github.com/weftgo/weft/dtype"
	"github.com/weftgo/weft/ep"
	"github.com/weftgo/weft/internal/kernels/exchange"
	"github.com/weftgo/weft/routing"
)

// New makes the strategy under test.
type New func(ctx context.Context, c *comm.Comm, cfg ep.Config) (ep.Exchanger, error)

// Open opens a world of ranks with a timeout for waits.
type Open func(t testing.TB, ranks int, timeout time.Duration) *comm.World

// TestExchanger runs the whole suite on the CPU driver.
func TestExchanger(t *testing.T, create New) {
	TestOn(t, create, func(t testing.TB, ranks int, timeout time.Duration) *comm.World {
		w, err := local.Open(local.Config{Ranks: ranks, Timeout: timeout})
		require.NoError(t, err)
		return w
	})
}

// TestOn runs the whole suite on the worlds of another driver. On a GPU, buffers are moved there and back.
func TestOn(t *testing.T, create New, open Open) { TestWith(t, create, open, Traits{}) }

// Traits are what the suite has to know of a strategy and its worlds.
type Traits struct {
	LowLatency bool // create sets Config.LowLatency: see LowLatency
	Nodes      int  // of every world; 0: the strategy has one level
	Ranks      int  // of every world, instead of the numbers of ranks of the suite
	// Bytes bounds the memory of a rank, instead of Config.Bytes.
	Bytes func(cfg ep.Config) (symmetric, private int64)

	brief bool // leave out shapes
}

// TestWith is TestOn for strategies with other traits than none: of low latency, or whose worlds have two levels and cannot be split.
func TestWith(t *testing.T, create New, open Open, have Traits) {
	on := newRig(t, create, open)
	on.traits = have
	exchange.Poison.Store(true)
	t.Cleanup(func() { exchange.Poison.Store(false) })
	t.Run("shapes", func(t *testing.T) { testShapes(t, on) })
	t.Run("ranks", func(t *testing.T) { testRanks(t, on) })
	if !have.brief { // another caller runs them
		t.Run("hidden", func(t *testing.T) { testHidden(t, on) })
		t.Run("placements", func(t *testing.T) { testPlacements(t, on) })
		t.Run("quantised", func(t *testing.T) { testQuantised(t, on) })
		t.Run("many tokens", func(t *testing.T) { testMany(t, on) })
		t.Run("random", func(t *testing.T) { testRandom(t, on) })
	}
	t.Run("counters", func(t *testing.T) { testCounters(t, on) })
	t.Run("interleaved", func(t *testing.T) { testInterleaved(t, on) })
	t.Run("banks", func(t *testing.T) { testBanks(t, on) })
	t.Run("order of results", func(t *testing.T) { testOrder(t, on) })
	t.Run("NumTokens", func(t *testing.T) { testNumTokens(t, on) })
	t.Run("refused calls", func(t *testing.T) { testRefused(t, on) })
	t.Run("construction", func(t *testing.T) { testConstruction(t, on) })
	t.Run("group", func(t *testing.T) { testGroup(t, on) })
	t.Run("NaN stays in its token", func(t *testing.T) { testNaN(t, on) })
	t.Run("another call", func(t *testing.T) { testElsewhere(t, on) })
	t.Run("late rank", func(t *testing.T) { testLate(t, on) })
	t.Run("dying rank", func(t *testing.T) { testDying(t, on) })
	t.Run("without ranks", func(t *testing.T) { testWithout(t, on) })
	t.Run("allocations", func(t *testing.T) { testAllocations(t, on) })
	if have.LowLatency {
		t.Run("halves", func(t *testing.T) { testHalves(t, on) })
	}
}

// steps runs all of them in order on one exchanger per rank.
func steps(t *testing.T, on *rig, ranks int, cfg ep.Config, o options, all ...Step) {
	t.Helper()
	err := on.world(t, ranks).Run(context.Background(), func(ctx context.Context, c *comm.Comm) error {
		x, err := on.create(ctx, c, cfg)
		if err != nil {
			return err
		}
		for _, s := range all {
			if err := run(ctx, c, x, s, o); err != nil {
				return err
			}
		}
		if m, ok := x.(ep.Meter); ok {
			symmetric, private := on.bytes(cfg, ranks)
			if held := m.Stats().HeldBytes; held > symmetric+private {
				return fmt.Errorf("rank %d holds %d bytes, bound %d + %d: %+v", c.Rank(), held, symmetric, private, cfg)
			}
		}
		return x.Close(ctx)
	})
	require.NoError(t, err)
}

// even is n tokens on each rank; ragged is n more or less on each, and none on some.
func even(ranks, n int) []int {
	x := make([]int, ranks)
	for r := range x {
		x[r] = n
	}
	return x
}

// repeat gives the list's numbers of tokens to the ranks in turn.
func repeat(ranks int, list ...int) []int {
	x := make([]int, ranks)
	for r := range x {
		x[r] = list[r%len(list)]
	}
	return x
}

func ragged(ranks, n int) []int {
	x := make([]int, ranks)
	for r := range x {
		x[r] = (n*(r+1) + 3*r) % (n + 1)
		if r%4 == 2 {
			x[r] = 0
		}
	}
	return x
}

// usual is what each shape goes through: big, small, zero, big again, and the odd kinds of routing.
func usual(cfg ep.Config, ranks int) []Step {
	cfg = cfg.WithDefaults(ranks)
	n := cfg.MaxTokensPerRank
	last := even(ranks, 0)
	last[ranks-1] = n
	return []Step{
		NewStep("big", cfg, 1, even(ranks, n), distinct),
		NewStep("small", cfg, 2, even(ranks, 1), distinct),
		NewStep("none anywhere", cfg, 3, even(ranks, 0), distinct),
		NewStep("big", cfg, 4, even(ranks, n), dirty),
		NewStep("ragged", cfg, 5, ragged(ranks, n), distinct),
		NewStep("only the last rank", cfg, 6, last, dirty),
		NewStep("one expert", cfg, 7, even(ranks, n), one),
		NewStep("no expert", cfg, 8, ragged(ranks, n), none),
		NewStep("ragged", cfg, 9, ragged(ranks, n), dirty),
	}
}

// testShapes crosses layouts, outputs, types, alignments, strides and bias.
func testShapes(t *testing.T, on *rig) {
	n, two := on.num(3), on.num(2)
	for _, layout := range []ep.Layout{ep.Rows, ep.Expanded} {
		for _, output := range []ep.Output{ep.ExpertRows, ep.PartialRows} {
			for i, dt := range []dtype.DType{dtype.F32, dtype.BF16, dtype.F16, dtype.F8E4M3} {
				cfg := ep.Config{NumExperts: 7, TopK: 3, Hidden: 130, MaxTokensPerRank: 9, DType: dt, Layout: layout,
					Output: output, Alignment: []int{0, 4, 8, 16}[i]}
				if dt == dtype.F8E4M3 {
					cfg.DType, cfg.Wire = dtype.F32, dt
				}
				o := options{gap: i * 3, ownY: i%2 == 1, numBias: i % 3}
				t.Run(fmt.Sprintf("%v %v %v bias %d", layout, output, dt, o.numBias), func(t *testing.T) {
					steps(t, on, n, cfg, o, usual(cfg, n)...)
				})
				o = options{numBias: 2 - i%3, ownY: i%2 == 0}
				steps(t, on, two, cfg, o, NewStep("other options", cfg.WithDefaults(two), 11, repeat(two, 4, 9), dirty))
			}
		}
	}
}

func testRanks(t *testing.T, on *rig) {
	for _, ranks := range on.nums(1, 2, 3, 5, 6, 7, 8) {
		for _, experts := range []int{1, 5, 16} { // fewer than ranks, not divisible, plenty
			cfg := ep.Config{NumExperts: experts, TopK: 4, Hidden: 16, MaxTokensPerRank: 12}
			steps(t, on, ranks, cfg, options{numBias: 1}, usual(cfg, ranks)...)
			cfg.Layout, cfg.Alignment = ep.Expanded, 8
			steps(t, on, ranks, cfg, options{}, usual(cfg, ranks)...)
		}
	}
}

func testHidden(t *testing.T, on *rig) {
	for _, hidden := range []int{1, 16, 120, 127, 200, 2880} {
		for _, wire := range []dtype.DType{dtype.F32, dtype.F8E4M3} {
			cfg := ep.Config{NumExperts: 6, TopK: 2, Hidden: hidden, MaxTokensPerRank: 5, Wire: wire}
			steps(t, on, on.num(3), cfg, options{}, usual(cfg, on.num(3))...)
		}
	}
}

func testPlacements(t *testing.T, on *rig) {
	for _, ranks := range on.nums(1, 3, 4) {
		for _, p := range []routing.Placement{
			{NumExperts: 6, Size: ranks, RoundRobin: true},
			{NumExperts: 6, Size: ranks, Physical: []int32{0, 1, 2, 3, 4, 5, 0, 0}},
			{NumExperts: 6, Size: ranks, Physical: []int32{5, 5, 4, 3, 2, 1, 0, 5, 1}, RoundRobin: true},
			{NumExperts: 6, Size: ranks, Physical: []int32{5, 3, 3, 0}, AllowMissing: true},
			{NumExperts: 6, Size: ranks, Physical: []int32{}, AllowMissing: true},
		} {
			cfg := ep.Config{NumExperts: 6, TopK: 3, Hidden: 8, MaxTokensPerRank: 10, Placement: p}
			steps(t, on, ranks, cfg, options{}, usual(cfg, ranks)...)
		}
	}
}

// testMany sends more tokens than 16 bits count, all to one expert of one rank.
func testMany(t *testing.T, on *rig) {
	if testing.Short() {
		t.Skip("moves 140,000 tokens; not with -short")
	}
	if on.traits.LowLatency {
		t.Skip("LowLatency takes few tokens")
	}
	cfg := ep.Config{NumExperts: 2, TopK: 1, Hidden: 1, MaxTokensPerRank: 70_000}
	ranks := on.num(2)
	steps(t, on, ranks, cfg, options{}, NewStep("many", cfg.WithDefaults(ranks), 1, repeat(ranks, 70_000, 70_000, 0, 0), one))
}

// testRandom runs random shapes; the seed is printed with the step that fails.
func testRandom(t *testing.T, on *rig) {
	rounds := 60
	if testing.Short() {
		rounds = 15
	}
	for seed := range uint64(rounds) {
		rng := rand.New(rand.NewPCG(seed, 77))
		ranks := on.num(1 + rng.IntN(8))
		cfg := ep.Config{NumExperts: 1 + rng.IntN(20), TopK: 1 + rng.IntN(6), Hidden: 1 + rng.IntN(40),
			MaxTokensPerRank: 1 + rng.IntN(20), Layout: ep.Layout(rng.IntN(2)), Output: ep.Output(rng.IntN(2)),
			Alignment: rng.IntN(9), Banks: rng.IntN(3)}
		cfg.DType = []dtype.DType{dtype.F32, dtype.BF16, dtype.F16}[rng.IntN(3)]
		filled := cfg.WithDefaults(ranks)
		var all []Step
		for i := range 4 {
			tokens := make([]int, ranks)
			for r := range tokens {
				tokens[r] = rng.IntN(cfg.MaxTokensPerRank + 1)
			}
			d := []draw{distinct, dirty, one}[rng.IntN(3)]
			all = append(all, NewStep(fmt.Sprintf("seed %d", seed), filled, seed*10+uint64(i), tokens, d))
		}
		steps(t, on, ranks, cfg, options{gap: rng.IntN(3), ownY: rng.IntN(2) == 0, numBias: rng.IntN(3)}, all...)
	}
}
