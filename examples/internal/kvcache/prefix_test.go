package kvcache

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func cached(t require.TestingT, numBlocks, blockSize int) *Pool {
	p, err := NewCached(numBlocks, blockSize)
	require.NoError(t, err)
	return p
}

// put allocates and stores the blocks of tokens, and returns them.
func put(t require.TestingT, p *Pool, salt string, tokens ...int32) []int32 {
	blocks, err := p.Alloc(nil, p.BlocksFor(len(tokens)))
	require.NoError(t, err)
	p.Store(&Chain{Salt: salt}, tokens, blocks)
	require.NoError(t, p.Check())
	return blocks
}

func match(p *Pool, salt string, tokens ...int32) []int32 {
	return p.Match(nil, &Chain{Salt: salt}, tokens)
}

func release(t require.TestingT, p *Pool, blocks ...int32) {
	require.NoError(t, p.Release(blocks...))
	require.NoError(t, p.Check())
}

func TestMatchFindsFullBlocks(t *testing.T) {
	p := cached(t, 8, 2)
	a := put(t, p, "", 1, 2, 3, 4, 5)
	require.Equal(t, a[:2], match(p, "", 1, 2, 3, 4, 5, 6), "the third block is not full")
	require.Equal(t, a[:2], match(p, "", 1, 2, 3, 4))
	require.Equal(t, a[:1], match(p, "", 1, 2, 3))
	require.Equal(t, a[:1], match(p, "", 1, 2, 3, 5))
	require.Empty(t, match(p, "", 1))
	require.Empty(t, match(p, "", 3, 4), "the second block alone is another prefix")
	require.Empty(t, match(p, "s", 1, 2, 3, 4), "another salt")
	b := put(t, p, "s", 1, 2)
	require.Equal(t, b, match(p, "s", 1, 2, 3, 4))

	release(t, p, a...)
	require.Equal(t, []int{2, 5, 1}, []int{p.Cached(), p.Free(), p.Used()})
	require.Equal(t, a[:2], match(p, "", 1, 2, 3, 4), "nobody's, but still there")
	require.Equal(t, 2, p.Idle([]int32{a[0], b[0], a[1]}))
	require.NoError(t, p.Retain(a[0]))
	require.Equal(t, []int{1, 5, 2}, []int{p.Cached(), p.Free(), p.Used()})
	require.NoError(t, p.Check())
	require.Equal(t, 1, p.Holders(a[0]))
	require.ErrorContains(t, p.Release(a[1]), "is free already", "cached blocks have no holders to take")
}

// Two sequences computed the same at the same time: the first one's blocks stay, the second one's are free when it lets go.
func TestStoreTwice(t *testing.T) {
	p := cached(t, 8, 2)
	a, b := put(t, p, "", 1, 2, 3, 4), put(t, p, "", 1, 2, 3, 4, 5, 6)
	require.Equal(t, []int32{a[0], a[1], b[2]}, match(p, "", 1, 2, 3, 4, 5, 6))
	release(t, p, b...)
	require.Equal(t, []int{1, 5, 2}, []int{p.Cached(), p.Free(), p.Used()})
}

func TestEvictsWhatWasUnusedForLongest(t *testing.T) {
	p := cached(t, 6, 2)
	a, b, c := put(t, p, "", 1, 2, 3, 4), put(t, p, "", 5, 6, 7, 8), put(t, p, "", 9, 10, 11, 12)
	release(t, p, b...)
	release(t, p, a...)
	release(t, p, c...)
	require.NoError(t, p.Retain(b...)) // used again, so now the youngest
	release(t, p, b...)
	require.Equal(t, []int{6, 0, 0}, []int{p.Cached(), p.Free(), p.Used()})
	for _, want := range []struct{ a, b, c int }{{1, 2, 2}, {0, 2, 2}, {0, 2, 1}, {0, 2, 0}, {0, 1, 0}, {0, 0, 0}} {
		_, err := p.Alloc(nil, 1)
		require.NoError(t, err)
		require.NoError(t, p.Check())
		require.Len(t, match(p, "", 1, 2, 3, 4), want.a)
		require.Len(t, match(p, "", 5, 6, 7, 8), want.b)
		require.Len(t, match(p, "", 9, 10, 11, 12), want.c)
	}
	_, err := p.Alloc(nil, 1)
	require.ErrorIs(t, err, ErrExhausted)
}

// The beginning of a sequence is evicted and computed again in another block, while its end is still held.
func TestEndFindsItsNewBeginning(t *testing.T) {
	p := cached(t, 4, 2)
	a := put(t, p, "", 1, 2)                  // a and b compute the same;
	b := put(t, p, "", 1, 2, 3, 4)            // the end of b stands behind a's block
	release(t, p, a...)                       //
	_, err := p.Alloc(nil, p.Available())     // a is evicted
	require.NoError(t, err)                   //
	require.Empty(t, match(p, "", 1, 2))      //
	p.Store(&Chain{}, []int32{1, 2, 3, 4}, b) // b computes more, and so stores again
	require.NoError(t, p.Check())
	require.Equal(t, b, match(p, "", 1, 2, 3, 4))
}

// Equal hashes of unequal contents, at the beginning and in the middle, never give the wrong block.
func TestCollisions(t *testing.T) {
	weak := func(n int) *Chain { return &Chain{hashes: []uint64{7, 8, 9}[:n]} }
	p := cached(t, 8, 1)
	store := func(tokens ...int32) []int32 {
		blocks, err := p.Alloc(nil, len(tokens))
		require.NoError(t, err)
		p.Store(weak(len(tokens)), tokens, blocks)
		require.NoError(t, p.Check())
		return blocks
	}
	a := store(1, 2)
	require.Equal(t, a, p.Match(nil, weak(2), []int32{1, 2}))
	require.Empty(t, p.Match(nil, weak(2), []int32{3, 2}), "other tokens in the first block")
	require.Equal(t, a[:1], p.Match(nil, weak(2), []int32{1, 3}))
	b := store(3, 2)
	require.Equal(t, b, p.Match(nil, weak(2), []int32{3, 2}))
	require.Empty(t, p.Match(nil, weak(2), []int32{1, 2}), "its place was taken")
	release(t, p, b...)
	release(t, p, a...)
	require.Equal(t, 2, p.Cached())
	// The second block has the same tokens and hash, but stands behind another first one.
	c := store(1)
	require.Equal(t, c, p.Match(nil, weak(2), []int32{1, 2}))
	q := &Chain{Salt: "q", hashes: []uint64{7}}
	require.Empty(t, p.Match(nil, q, []int32{1}), "the salt itself is compared")
}

func TestPoolWithoutCacheFindsNothing(t *testing.T) {
	p, err := New(4, 1)
	require.NoError(t, err)
	a := put(t, p, "", 1, 2)
	require.Empty(t, match(p, "", 1, 2))
	release(t, p, a...)
	require.Equal(t, 4, p.Free())
	require.False(t, p.CachesPrefixes())
	_, err = NewCached(0, 1)
	require.Error(t, err)
}

func TestChainGrows(t *testing.T) {
	tokens := []int32{5, 0, 0, 3, 9, 1, 7}
	whole := (&Chain{Salt: "s"}).Extend(tokens, 2)
	require.Len(t, whole, 3)
	var grown Chain
	grown.Salt = "s"
	for n := range len(tokens) + 1 {
		require.Equal(t, whole[:n/2], append([]uint64{}, grown.Extend(tokens[:n], 2)...))
	}
	require.Equal(t, whole[:1], grown.Extend(tokens[:3], 2), "a shorter one afterwards")
	seen := map[uint64]string{}
	for _, salt := range []string{"", "a", "b", "ab", "\x00"} {
		for _, ids := range [][]int32{{0, 0, 0, 0}, {0, 1, 0, 0}, {1, 0, 0, 0}, {0, 0, 1, 0}} {
			h := (&Chain{Salt: salt}).Extend(ids, 4)[0]
			require.Empty(t, seen[h])
			seen[h] = fmt.Sprint(salt, ids)
		}
	}
}

// Sequences come, share, compute in pieces, and go, under a check of what every block really holds.
func TestCacheHoldsWhatItSays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		total, size := rapid.IntRange(1, 16).Draw(t, "total"), rapid.IntRange(1, 3).Draw(t, "block size")
		weak := rapid.Bool().Draw(t, "weak hashes")
		p := cached(t, total, size)
		type sequence struct {
			chain    *Chain
			tokens   []int32
			blocks   []int32
			computed int // in blocks
		}
		content := make([]string, total) // what was written to a block: all tokens up to its end
		var all []*sequence
		text := func(s *sequence, block int) string { return fmt.Sprint(s.chain.Salt, s.tokens[:(block+1)*size]) }
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				s := &sequence{chain: &Chain{Salt: rapid.SampledFrom([]string{"", "x"}).Draw(t, "salt")},
					tokens: rapid.SliceOfN(rapid.Int32Range(0, 1), size, 6*size).Draw(t, "tokens")}
				if weak {
					for i, h := range s.chain.Extend(s.tokens, size) {
						s.chain.hashes[i] = h % 5
					}
				}
				hit := p.Match(nil, s.chain, s.tokens)
				for i, b := range hit {
					require.Equal(t, text(s, i), content[b])
				}
				need := p.BlocksFor(len(s.tokens)) - len(hit)
				if need > p.Available()-p.Idle(hit) {
					return
				}
				require.NoError(t, p.Retain(hit...))
				var err error
				s.blocks, err = p.Alloc(slices.Clone(hit), need)
				require.NoError(t, err)
				s.computed = len(hit)
				all = append(all, s)
			},
			"compute": func(t *rapid.T) {
				if len(all) == 0 {
					return
				}
				s := all[rapid.IntRange(0, len(all)-1).Draw(t, "which")]
				to := rapid.IntRange(s.computed, len(s.tokens)/size).Draw(t, "to")
				for ; s.computed < to; s.computed++ {
					require.Equal(t, 1, p.Holders(s.blocks[s.computed]), "who writes is alone")
					content[s.blocks[s.computed]] = text(s, s.computed)
				}
				p.Store(s.chain, s.tokens[:to*size], s.blocks[:to])
				if !weak {
					require.Len(t, p.Match(nil, s.chain, s.tokens[:to*size]), to)
				}
			},
			"release": func(t *rapid.T) {
				if len(all) == 0 {
					return
				}
				i := rapid.IntRange(0, len(all)-1).Draw(t, "which")
				require.NoError(t, p.Release(all[i].blocks...))
				all = slices.Delete(all, i, i+1)
			},
			"": func(t *rapid.T) {
				require.NoError(t, p.Check())
				held := map[int32]int{}
				for _, s := range all {
					for i, b := range s.blocks {
						held[b]++
						if i < s.computed {
							require.Equal(t, text(s, i), content[b], "written over")
						}
					}
				}
				require.Len(t, held, p.Used())
				require.Equal(t, total, p.Free()+p.Used()+p.Cached())
			},
		})
	})
}

// A sequence that grows token by token stores a block now and then; the rest of the time nothing is allocated.
func TestStoreAllocatesLittle(t *testing.T) {
	p := cached(t, 4, 64)
	tokens := make([]int32, 192)
	blocks := put(t, p, "", tokens...)
	c := &Chain{}
	require.Zero(t, testing.AllocsPerRun(10, func() { p.Store(c, tokens, blocks) }))
	dst := make([]int32, 0, 4)
	require.Zero(t, testing.AllocsPerRun(10, func() { dst = p.Match(dst[:0], c, tokens) }))
	require.Len(t, dst, 3)
}
