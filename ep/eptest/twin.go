package eptest

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/comm/local"
	"github.com/weftgo/weft/dtype"
	"github.com/weftgo/weft/ep"
	"github.com/weftgo/weft/routing"
)

// TestTwin runs the same random steps on the CPU driver and on another one, and compares every byte: rows, scales, index,
// counts and outputs. Values are no small integers, so that every order of sums has its own bits.
func TestTwin(t *testing.T, create New, open Open) {
	TestTwinOf(t, create, func(t testing.TB, ranks int, timeout time.Duration) *comm.World {
		w, err := local.Open(local.Config{Ranks: ranks, Timeout: timeout})
		require.NoError(t, err)
		return w
	}, open)
}

// TestTwinOf is TestTwin with worlds of the CPU that are not comm/local's.
func TestTwinOf(t *testing.T, create New, onHost, open Open) {
	runTwins(t, create, onHost, open, twinCases())
}

func runTwins(t *testing.T, create New, onHost, open Open, cases []twinCase) {
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			if x, err := tc.cfg.Fill(tc.ranks); err != nil {
				t.Fatal(x, err)
			}
			host := onHost(t, tc.ranks, time.Minute)
			if tc.cfg.RankInvariant || tc.cfg.MaxRecvRows > 0 {
				if err := host.Run(context.Background(), func(ctx context.Context, c *comm.Comm) error {
					_, err := create(ctx, c, tc.cfg)
					return err
				}); err != nil {
					t.Skip(err)
				}
			}
			want := tc.run(t, &rig{make: create}, host)
			require.NoError(t, host.Close(context.Background()))
			dev := open(t, tc.ranks, 20*time.Second)
			got := tc.run(t, &rig{make: create}, dev)
			require.NoError(t, dev.Close(context.Background()))
			for i, w := range want {
				require.Equal(t, w.err, got[i].err, "step %d rank %d", i/tc.ranks, i%tc.ranks)
				for name, b := range w.data {
					g := got[i].data[name]
					if n := differ(b, g); n >= 0 {
						t.Fatalf("step %d rank %d: %s differs at byte %d of %d (%d): want % x, got % x", i/tc.ranks, i%tc.ranks, name, n,
							len(b), len(g), b[n:min(len(b), n+16)], g[min(n, len(g)):min(len(g), n+16)])
					}
				}
			}
		})
	}
}

func differ(a, b []byte) int {
	if bytes.Equal(a, b) {
		return -1
	}
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}

// twinCase is steps of one configuration. tokens[i] are the tokens of each rank in step i.
type twinCase struct {
	name    string
	ranks   int
	cfg     ep.Config
	tokens  [][]int
	draw    draw
	numBias int
	odd     bool // some groups of x have zeros, tiny and huge values, and NaN
}

func twinCases() []twinCase {
	var list []twinCase
	add := func(name string, ranks int, cfg ep.Config, d draw, numBias int, tokens ...[]int) {
		if cfg.MaxTokensPerRank == 0 {
			for _, step := range tokens {
				for _, n := range step {
					cfg.MaxTokensPerRank = max(cfg.MaxTokensPerRank, n)
				}
			}
		}
		list = append(list, twinCase{name, ranks, cfg, tokens, d, numBias, false})
	}
	for i, dt := range []dtype.DType{dtype.BF16, dtype.F16, dtype.F32} {
		for _, out := range []ep.Output{ep.ExpertRows, ep.PartialRows} {
			cfg := ep.Config{NumExperts: 22, TopK: 6, Hidden: 136, DType: dt, Output: out, Alignment: 8}
			name := fmt.Sprintf("%v %v", dt, out)
			add(name, 8, cfg, distinct, i, even(8, 33), even(8, 1), even(8, 0), ragged(8, 33))
			cfg.Wire, cfg.Layout = dtype.F8E4M3, ep.Expanded
			add(name+" fp8 expanded", 5, cfg, dirty, 2-i, even(5, 20), ragged(5, 20))
		}
	}
	big := ep.Config{NumExperts: 128, TopK: 8, Hidden: 64, DType: dtype.BF16}
	add("blocks share the tokens", 8, big, distinct, 0, even(8, 700), ragged(8, 700), even(8, 3))
	add("all to one expert", 6, big, one, 1, even(6, 600))
	odd := big
	odd.NumExperts, odd.Hidden, odd.TopK = 13, 7176, 5
	add("13 experts hidden 7176", 7, odd, dirty, 1, even(7, 300), even(7, 9))
	for _, hidden := range []int{16, 120, 2880, 3072, 7168} {
		cfg := ep.Config{NumExperts: 16, TopK: 4, Hidden: hidden, DType: dtype.BF16}
		add(fmt.Sprintf("hidden %d", hidden), 3, cfg, distinct, 0, even(3, 20))
		cfg.Wire = dtype.F8E4M3
		add(fmt.Sprintf("hidden %d fp8", hidden), 2, cfg, distinct, 0, even(2, 20))
	}
	for i, hidden := range []int{1296, 8208, 4112} { // fp8 rows by bulk copies: one piece, and pieces of which the last is short
		cfg := ep.Config{NumExperts: 16, TopK: 4, Hidden: hidden, DType: []dtype.DType{dtype.F16, dtype.BF16, dtype.F32}[i], Wire: dtype.F8E4M3}
		add(fmt.Sprintf("hidden %d fp8 %v", hidden, cfg.DType), 3, cfg, distinct, 0, []int{300, 257, 0})
		list[len(list)-1].odd = true
	}
	k := ep.Config{NumExperts: 22, TopK: 6, Hidden: 136, DType: dtype.BF16, RankInvariant: true}
	add("rank invariant", 6, k, dirty, 2, even(6, 33), ragged(6, 33), even(6, 300))
	tight := ep.Config{NumExperts: 12, TopK: 3, Hidden: 40, DType: dtype.F32, Alignment: 4, MaxRecvRows: 61, Overflow: ep.Drop}
	add("drop", 4, tight, distinct, 0, even(4, 30), ragged(4, 30), even(4, 3), even(4, 30))
	tight.MaxRecvRows = 700
	add("drop, blocks share the tokens", 3, tight, dirty, 1, even(3, 600), []int{600, 0, 300})
	tight.Overflow = ep.Fail
	add("fail", 3, tight, distinct, 1, even(3, 600), even(3, 20), []int{600, 600, 0}, even(3, 5))
	round := ep.Config{NumExperts: 6, TopK: 3, Hidden: 24, DType: dtype.BF16}
	round.Placement = routing.Placement{NumExperts: 6, Size: 4, Physical: []int32{5, 5, 4, 3, 2, 1, 0, 5, 1}, RoundRobin: true}
	add("replicas", 4, round, dirty, 1, even(4, 30), even(4, 280))
	round.Placement = routing.Placement{NumExperts: 6, Size: 4, Physical: []int32{5, 5, 4, 1, 1}, AllowMissing: true}
	add("missing experts", 4, round, dirty, 1, even(4, 30), even(4, 280))
	round.Placement.Physical = []int32{}
	add("all experts missing", 4, round, dirty, 0, even(4, 30))
	add("65537 tokens", 2, ep.Config{NumExperts: 32, TopK: 2, Hidden: 16, DType: dtype.BF16}, distinct, 0, []int{65537, 3})
	return list
}

// overflow is what Fail says, on every driver.
var overflow = regexp.MustCompile(`rank \d+ would receive \d+ rows > MaxRecvRows \d+`)

// outcome is what one rank had in one step.
type outcome struct {
	err  string
	data map[string][]byte
}

func (tc twinCase) run(t *testing.T, on *rig, w *comm.World) []outcome {
	all := make([]outcome, len(tc.tokens)*tc.ranks)
	err := w.Run(context.Background(), func(ctx context.Context, c *comm.Comm) error {
		x, err := on.create(ctx, c, tc.cfg)
		if err != nil {
			return err
		}
		for i, tokens := range tc.tokens {
			o, err := tc.step(ctx, c, x, uint64(i), tokens[c.Rank()])
			if err != nil {
				return err
			}
			all[i*tc.ranks+c.Rank()] = o
		}
		return x.Close(ctx)
	})
	require.NoError(t, err)
	return all
}

// step runs one exchange with this rank's random tokens.
func (tc twinCase) step(ctx context.Context, c *comm.Comm, x ep.Exchanger, seed uint64, tokens int) (outcome, error) {
	cfg := x.Config()
	rng := rand.New(rand.NewPCG(seed, uint64(c.Rank())))
	random := func(n int) []float32 {
		v := make([]float32, n)
		for i := range v {
			v[i] = float32(rng.NormFloat64())
		}
		return v
	}
	ids := make([]int32, tokens*cfg.TopK)
	for i := range tokens {
		tc.draw(rng, ids[i*cfg.TopK:(i+1)*cfg.TopK], cfg.NumExperts)
	}
	values := random(tokens * cfg.Hidden)
	if tc.odd {
		spoil(rng, values)
	}
	in := narrow(values, tokens, cfg.Hidden, cfg.Hidden, cfg.DType)
	r, err := x.Dispatch(comm.Stream{}, in, ep.Routing{IDs: comm.Of(ids, cfg.TopK), Weights: comm.Of(random(len(ids)), cfg.TopK)})
	if text := overflow.FindString(fmt.Sprint(err)); text != "" {
		return outcome{err: text}, nil
	}
	if err != nil {
		return outcome{}, err
	}
	o := outcome{data: map[string][]byte{"x": withoutGaps(cfg, r, r.X), "row": packed(r.Index.Row), "k": packed(r.Index.K), "weight": packed(r.Index.Weight),
		"counts": packed(r.Index.Counts), "offsets": packed(r.Index.Offsets), "dropped": packed(r.Dropped), "rows": packed(r.NumRows)}}
	if !r.Scales.IsZero() {
		o.data["scales"] = withoutGaps(cfg, r, r.Scales)
	}
	// A function of slot and column that both drivers share: no exchange of ours is in it.
	for i := range r.Y.Rows() {
		y := make([]float32, cfg.Hidden)
		for j := range y {
			y[j] = float32(math.Sin(float64(i*31+j*7+c.Rank()*1000) * 0.1))
		}
		writeRow(r.Y, i, y)
	}
	out := narrow(make([]float32, tokens*cfg.Hidden), tokens, cfg.Hidden, cfg.Hidden, cfg.DType)
	var bias []comm.Buffer
	for range tc.numBias {
		bias = append(bias, narrow(random(tokens*cfg.Hidden), tokens, cfg.Hidden, cfg.Hidden, cfg.DType))
	}
	if err := x.Combine(comm.Stream{}, out, r.Y, r, bias...); err != nil {
		return outcome{}, err
	}
	o.data["out"] = packed(out)
	return o, nil
}

// spoil puts runs of odd values into x: alike ones, which are a group's scale, or single ones. No infinities and no -NaN: the sign of
// inf/inf, and of what comes of -NaN, differs between processors.
func spoil(rng *rand.Rand, x []float32) {
	nan, zero := float32(math.NaN()), float32(math.Copysign(0, -1))
	odd := []float32{nan, zero, 0, 1e-45, -1e-45, 1e-38, -3e-33, 1e-27, 1e-24, -1e-10, 3e38, -3e38}
	for i := 0; i < len(x); i += 1 + rng.IntN(2000) {
		v := odd[rng.IntN(len(odd))]
		for n := []int{1, 1, 400}[rng.IntN(3)]; n > 0 && i < len(x); n-- {
			x[i] = v
			i++
		}
	}
}

// packed copies a buffer's rows.
func packed(b comm.Buffer) []byte {
	var x []byte
	for i := range b.Rows() {
		x = append(x, b.RowBytes(i)...)
	}
	return x
}
