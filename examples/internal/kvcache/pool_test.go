package kvcache

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestExhaustionTakesNothing(t *testing.T) {
	p, err := New(4, 16)
	require.NoError(t, err)
	got, err := p.Alloc(nil, 3)
	require.NoError(t, err)
	require.Equal(t, []int32{0, 1, 2}, got)
	got, err = p.Alloc(got, 2)
	require.ErrorIs(t, err, ErrExhausted)
	require.ErrorContains(t, err, "2 blocks needed, 1 of 4 free")
	require.Equal(t, []int32{0, 1, 2}, got)
	require.Equal(t, 1, p.Free())
	_, err = p.Alloc(nil, -1)
	require.Error(t, err)
}

func TestDoubleFree(t *testing.T) {
	p, err := New(4, 16)
	require.NoError(t, err)
	a, err := p.Alloc(nil, 2)
	require.NoError(t, err)
	require.ErrorContains(t, p.Release(a[0], a[0]), "block 0 is free already")
	require.Equal(t, 1, p.Holders(a[0]), "nothing was released")
	require.NoError(t, p.Retain(a[0]))
	require.NoError(t, p.Release(a[0], a[0]), "two holders")
	require.NoError(t, p.Check())
	require.ErrorContains(t, p.Release(a[1], a[0]), "block 0 is free already")
	require.Equal(t, 1, p.Holders(a[1]))
	require.ErrorContains(t, p.Retain(a[0]), "block 0 is free already")
	require.ErrorContains(t, p.Release(4), "block 4 is not in [0, 4)")
	require.ErrorContains(t, p.Release(-1), "block -1 is not in [0, 4)")
	require.Equal(t, 3, p.Free())
}

func TestNewRefuses(t *testing.T) {
	for _, n := range [][2]int{{0, 1}, {1, 0}, {-1, 5}} {
		_, err := New(n[0], n[1])
		require.Error(t, err)
	}
}

func TestBlocksFor(t *testing.T) {
	p, err := New(1, 16)
	require.NoError(t, err)
	for tokens, want := range map[int]int{0: 0, 1: 1, 15: 1, 16: 1, 17: 2, 32: 2, 33: 3} {
		require.Equal(t, want, p.BlocksFor(tokens), "%d tokens", tokens)
	}
}

// The pool against a map of holders.
func TestPoolIsABag(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		total := rapid.IntRange(1, 20).Draw(t, "total")
		p, err := New(total, 4)
		require.NoError(t, err)
		model := map[int32]int{}
		var held []int32 // one entry for each hold
		t.Repeat(map[string]func(*rapid.T){
			"alloc": func(t *rapid.T) {
				n := rapid.IntRange(0, 6).Draw(t, "n")
				got, err := p.Alloc(nil, n)
				if n > total-len(model) {
					require.ErrorIs(t, err, ErrExhausted)
					return
				}
				require.NoError(t, err)
				require.Len(t, got, n)
				for _, b := range got {
					require.Zero(t, model[b], "block %d was held", b)
					model[b] = 1
				}
				held = append(held, got...)
			},
			"retain": func(t *rapid.T) {
				b := int32(rapid.IntRange(0, total-1).Draw(t, "b"))
				if err := p.Retain(b); model[b] == 0 {
					require.Error(t, err)
					return
				}
				model[b]++
				held = append(held, b)
			},
			"release": func(t *rapid.T) {
				n := rapid.IntRange(0, len(held)).Draw(t, "n")
				require.NoError(t, p.Release(held[:n]...))
				for _, b := range held[:n] {
					if model[b]--; model[b] == 0 {
						delete(model, b)
					}
				}
				held = held[n:]
			},
			"": func(t *rapid.T) {
				require.NoError(t, p.Check())
				require.Equal(t, len(model), p.Used())
				require.Equal(t, total, p.Free()+p.Used())
				for b := range int32(total) {
					require.Equal(t, model[b], p.Holders(b))
				}
			},
		})
	})
}
