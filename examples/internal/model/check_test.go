package model

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/comm/local"
	"github.com/weftgo/weft/examples/internal/batch"
	"github.com/weftgo/weft/examples/internal/checkpoint"
	"github.com/weftgo/weft/internal/race"
	"github.com/weftgo/weft/moe"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestCheckRefusesWithTheNumbers(t *testing.T) {
	f, err := oddFolder()
	require.NoError(t, err)
	dense := *f.Config
	dense.NumExperts = 0
	for _, c := range []struct {
		name  string
		model *checkpoint.Config
		ranks int
		cfg   Config
		want  string // "" for fine
	}{
		{"defaults", f.Config, 1, Config{}, ""},
		{"tp6", f.Config, 6, Config{Parallel: moe.Parallel{TP: 6}}, ""},
		{"world", f.Config, 7, Config{Parallel: moe.Parallel{TP: 2, DP: 4}}, "tp 2 x dp 4 are 8 ranks, the world has 7"},
		{"heads", f.Config, 8, Config{Parallel: moe.Parallel{TP: 8}}, "tp 8 > 6 attention heads"},
		{"experts", f.Config, 11, Config{Parallel: moe.Parallel{DP: 11, EP: true}}, "ep over 11 ranks > 10 experts"},
		{"slices", f.Config, 41, Config{Parallel: moe.Parallel{DP: 41}}, "moe_intermediate_size 40 sliced over 41 ranks"},
		{"dense ep", &dense, 2, Config{Parallel: moe.Parallel{DP: 2, EP: true}}, "model of 3 dense layers without experts"},
		{"dense dp", &dense, 2, Config{Parallel: moe.Parallel{DP: 2}}, ""},
		{"backend", f.Config, 1, Config{Backend: "mpi"}, `backend "mpi"; use agrs, alltoall or auto`},
		{"block", f.Config, 1, Config{BlockSize: 24}, "BlockSize 24 is not a positive multiple of 16"},
		{"blocks", f.Config, 1, Config{NumBlocks: 1 << 30, BlockSize: 16}, "NumBlocks 1073741824 x BlockSize 16 positions"},
		{"negative", f.Config, 1, Config{NumBlocks: -1}, "NumBlocks -1"},
		{"invariant", f.Config, 2, Config{Parallel: moe.Parallel{DP: 2, EP: true}, Backend: "agrs", RankInvariant: true}, "RankInvariant with backend agrs"},
		{"invariant tp", f.Config, 2, Config{Parallel: moe.Parallel{TP: 2}, RankInvariant: true}, "RankInvariant"},
		{"memory", f.Config, 1, Config{NumBlocks: 1 << 16, BlockSize: 16, MaxBytes: 1 << 29}, "65536 blocks of keys and values 768, scratch 6) > MaxBytes 512 MiB"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := c.cfg.Check(c.model, c.ranks)
			if c.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.want)
		})
	}
}

// onOneRank runs fn with the odd model on one rank.
func onOneRank(t testing.TB, cfg Config, fn func(m *Model)) {
	f, err := oddFolder()
	require.NoError(t, err)
	w, err := local.Open(local.Config{Ranks: 1})
	require.NoError(t, err)
	require.NoError(t, w.Run(context.Background(), func(ctx context.Context, c *comm.Comm) error {
		m, err := New(ctx, c, f, cfg)
		if err != nil {
			return err
		}
		fn(m)
		return m.Close(ctx)
	}))
	require.NoError(t, w.Close(context.Background()))
}

func TestForwardRefusesWithTheNumbers(t *testing.T) {
	onOneRank(t, Config{BlockSize: 16, NumBlocks: 3, MaxBatchedTokens: 20}, func(m *Model) {
		for _, c := range []struct {
			want string
			seq  batch.Seq
		}{
			{"step of 21 tokens > MaxBatchedTokens 20", batch.Seq{Tokens: make([]int32, 21), Blocks: []int32{0, 1}}},
			{"0 tokens from position 3", batch.Seq{Start: 3, Blocks: []int32{0}}},
			{"1 tokens from position -1", batch.Seq{Tokens: []int32{1}, Start: -1, Blocks: []int32{0}}},
			{"position 48; the model runs up to 48 positions", batch.Seq{Tokens: []int32{1}, Start: 48, Blocks: []int32{0, 1, 2, 0}}},
			{"1 blocks of 16 positions do not hold 17", batch.Seq{Tokens: []int32{1}, Start: 16, Blocks: []int32{0}}},
			{"logits of the last 2 tokens of 1", batch.Seq{Tokens: []int32{1}, Blocks: []int32{0}, NumLogits: 2}},
			{"block 1 is number 3; the cache has 3", batch.Seq{Tokens: []int32{1}, Blocks: []int32{0, 3}}},
			{"token 1 is id 515; the vocabulary has 515", batch.Seq{Tokens: []int32{514, 515}, Blocks: []int32{0}}},
			{"token 0 is id -1", batch.Seq{Tokens: []int32{-1}, Blocks: []int32{0}}},
		} {
			_, err := m.Forward(comm.Stream{}, &batch.Batch{Seqs: []batch.Seq{c.seq}})
			require.ErrorContains(t, err, c.want)
		}
		logits, err := m.Forward(comm.Stream{}, &batch.Batch{Seqs: []batch.Seq{{Tokens: []int32{1}, Blocks: []int32{0}, NumLogits: 1}}})
		require.NoError(t, err, "the model works on after a refusal")
		require.Len(t, logits, 515)
	})
}

// A world that is too small is refused before anything is read.
func TestNewChecksFirst(t *testing.T) {
	f, err := oddFolder()
	require.NoError(t, err)
	w, err := local.Open(local.Config{Ranks: 1})
	require.NoError(t, err)
	_, err = New(context.Background(), w.Local()[0], f, Config{Parallel: moe.Parallel{TP: 2}})
	require.ErrorContains(t, err, "model: tp 2 x dp 1 are 2 ranks, the world has 1")
}

// Memory of the estimate and of a real model agree: the cache exactly, the rest is what allocate makes.
func TestMemoryCountsWhatIsAllocated(t *testing.T) {
	cfg := Config{BlockSize: 16, NumBlocks: 5, MaxBatchedTokens: 20}
	onOneRank(t, cfg, func(m *Model) {
		need := cfg.Memory(m.model, 0)
		cache, weights := 0, m.head.NumBytes()
		for _, y := range m.layers {
			cache += 4 * (len(y.cache.keys) + len(y.cache.values))
			weights += y.qkv.NumBytes() + y.out.NumBytes()
			if y.gateUp != nil {
				weights += y.gateUp.NumBytes() + y.down.NumBytes()
			}
		}
		require.EqualValues(t, cache, need.Cache)
		experts := 4 * (10*72 + 10*(80*72+80*40)) // router, and gate, up and down in panels
		require.EqualValues(t, weights+experts, need.Weights)
		b := &m.mem
		scratch := 0
		for _, x := range [][]float32{b.x, b.y, b.out, b.own, b.gateUp, b.act, m.q, m.attn} {
			scratch += 4 * len(x)
		}
		require.EqualValues(t, scratch, need.Scratch)
	})
}

func TestSharesCoverEverythingOnce(t *testing.T) {
	for n := range 20 {
		for parts := 1; parts < 10; parts++ {
			at, padded := 0, 0
			for i := range parts {
				s := share(n, parts, i)
				require.Equal(t, at, s.lo)
				at = s.hi
				p, width := paddedShare(n, parts, i)
				require.Equal(t, padded, p.lo)
				require.LessOrEqual(t, p.len(), width)
				padded = p.hi
			}
			require.Equal(t, n, at)
			require.Equal(t, n, padded)
		}
	}
	for _, c := range []struct{ heads, kv int }{{8, 4}, {6, 2}, {8, 1}, {5, 5}, {12, 4}} {
		for tp := 1; tp <= c.heads; tp++ {
			next := 0
			for r := range tp {
				q, groups := headGroups(c.heads, c.kv, tp, r)
				require.Equal(t, next, q.lo)
				for _, g := range groups {
					for range g.heads {
						require.Equal(t, next/(c.heads/c.kv), g.kv)
						next++
					}
				}
				require.Equal(t, next, q.hi)
			}
			require.Equal(t, c.heads, next)
		}
	}
}

func TestStepsAllocateNothing(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector empties pools at random")
	}
	onOneRank(t, Config{BlockSize: 16, NumBlocks: 8, MaxBatchedTokens: 64}, func(m *Model) {
		b := batch.Batch{Seqs: []batch.Seq{
			{Tokens: make([]int32, 40), Blocks: []int32{0, 1, 2}, NumLogits: 2},
			{Tokens: make([]int32, 1), Start: 50, Blocks: []int32{3, 4, 5, 6}, NumLogits: 1, Generation: true},
		}}
		step := func() {
			_, err := m.Forward(comm.Stream{}, &b)
			require.NoError(t, err)
		}
		step()
		require.Zero(t, testing.AllocsPerRun(20, step))
	})
}
