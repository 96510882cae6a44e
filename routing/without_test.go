package routing

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// Every survivor keeps its hand, card by card, however often ranks go; what nobody holds any more is missing.
func TestWithoutKeepsHands(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawPlacement(t)
		hands := deal(p)
		for range 3 {
			gone := rapid.SliceOfNDistinct(rapid.IntRange(0, p.Size-1), 0, p.Size-1, rapid.ID).Draw(t, "gone")
			left, err := p.Without(gone...)
			require.NoError(t, err)
			require.NoError(t, left.Validate())
			var want [][]int32
			held := map[int]bool{}
			for r, hand := range hands {
				if slices.Contains(gone, r) {
					continue
				}
				want = append(want, hand)
				for _, e := range hand {
					held[int(e)] = true
				}
			}
			require.Equal(t, len(want), left.Size)
			survivors := Survivors(p.Size, gone...)
			require.Len(t, survivors, left.Size)
			for r, hand := range want {
				require.Equal(t, len(hand), left.NumLocal(r), "rank %d", r)
				for i, e := range hand {
					require.EqualValues(t, e, left.LogicalOf(r, i))
					require.Equal(t, p.LogicalOf(survivors[r], i), left.LogicalOf(r, i))
				}
			}
			for e := range p.NumExperts {
				require.Equal(t, !held[e], slices.Contains(left.Missing(), e))
				rank, local := left.Owner(e)
				require.Equal(t, held[e], rank >= 0)
				require.Equal(t, held[e], local >= 0)
			}
			p, hands = left, want
		}
	})
}

func TestWithoutErrors(t *testing.T) {
	p := Placement{NumExperts: 6, Size: 3}
	for text, missing := range map[string][]int{
		"rank 3 cannot be missing: the ranks are [0, 3)":        {3},
		"rank -1 cannot be missing":                             {0, -1},
		"rank 1 is named twice among the missing ranks [1 2 1]": {1, 2, 1},
		"all 3 ranks are missing":                               {2, 0, 1},
	} {
		_, err := p.Without(missing...)
		require.ErrorContains(t, err, text)
	}
	_, err := Placement{NumExperts: 1}.Without()
	require.ErrorContains(t, err, "0 ranks")
	same, err := p.Without()
	require.NoError(t, err)
	require.Equal(t, p, same)
	twice := Placement{NumExperts: 2, Size: 2, Physical: []int32{0, 1, 1, 0}}
	left, err := twice.Without(0)
	require.NoError(t, err)
	require.False(t, left.AllowMissing, "both experts have a replica on rank 1")
	require.Nil(t, left.Missing())
}

func ExamplePlacement_Without() {
	p := Placement{NumExperts: 6, Size: 3}
	left, err := p.Without(1)
	if err != nil {
		fmt.Println(err)
		return
	}
	for r := range left.Size {
		for i := range left.NumLocal(r) {
			fmt.Printf("rank %d (was %d), local %d: expert %d\n", r, Survivors(3, 1)[r], i, left.LogicalOf(r, i))
		}
	}
	fmt.Println("missing", left.Missing())
	// Output:
	// rank 0 (was 0), local 0: expert 0
	// rank 0 (was 0), local 1: expert 1
	// rank 1 (was 2), local 0: expert 4
	// rank 1 (was 2), local 1: expert 5
	// missing [2 3]
}
