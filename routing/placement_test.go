package routing

import (
	"fmt"
	"math/bits"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// drawPlacement draws placements of every kind: few or many experts, replicas, round robin, missing experts.
func drawPlacement(t *rapid.T) Placement {
	p := Placement{NumExperts: rapid.IntRange(1, 20).Draw(t, "experts"), Size: rapid.IntRange(1, 12).Draw(t, "ranks"),
		RoundRobin: rapid.Bool().Draw(t, "round robin")}
	if rapid.Bool().Draw(t, "replicas") {
		extra := rapid.SliceOfN(rapid.IntRange(0, p.NumExperts-1), 0, 8).Draw(t, "extra")
		for e := range p.NumExperts {
			p.Physical = append(p.Physical, int32(e))
		}
		for _, e := range extra {
			at := rapid.IntRange(0, len(p.Physical)).Draw(t, "at")
			p.Physical = append(p.Physical[:at], append([]int32{int32(e)}, p.Physical[at:]...)...)
		}
		if p.AllowMissing = rapid.Bool().Draw(t, "missing"); p.AllowMissing {
			p.Physical = p.Physical[:rapid.IntRange(0, len(p.Physical)).Draw(t, "left")]
		}
	}
	return p
}

// deal hands physical experts out like cards and returns what each rank holds: written apart from the arithmetic above.
func deal(p Placement) (hands [][]int32) {
	cards := p.Physical
	if cards == nil {
		for e := range p.NumExperts {
			cards = append(cards, int32(e))
		}
	}
	hands = make([][]int32, p.Size)
	if p.RoundRobin {
		for i, e := range cards {
			hands[i%p.Size] = append(hands[i%p.Size], e)
		}
		return hands
	}
	size := make([]int, p.Size)
	for i := range cards {
		size[i%p.Size]++
	}
	for r, n := range size {
		hands[r], cards = cards[:n], cards[n:]
	}
	return hands
}

// dealtPlace finds the replica a token uses by listing them in the order they were dealt; -1, -1 of a missing expert.
func dealtPlace(p Placement, token, expert int) (rank, local int) {
	hands := deal(p)
	var replicas [][2]int
	list := func(r, i int) {
		if i < len(hands[r]) && int(hands[r][i]) == expert {
			replicas = append(replicas, [2]int{r, i})
		}
	}
	if p.RoundRobin {
		for i := range len(hands[0]) {
			for r := range hands {
				list(r, i)
			}
		}
	} else {
		for r := range hands {
			for i := range hands[r] {
				list(r, i)
			}
		}
	}
	if len(replicas) == 0 {
		return -1, -1
	}
	at := replicas[token%len(replicas)]
	return at[0], at[1]
}

func TestEveryExpertHasOnePlace(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawPlacement(t)
		require.NoError(t, p.Validate())
		table, err := NewTable(p)
		require.NoError(t, err)
		seen := map[[2]int]bool{}
		total := 0
		for r := range p.Size {
			total += p.NumLocal(r)
			for i := range p.NumLocal(r) {
				e := p.PhysicalOf(r, i)
				rank, local := p.OwnerOfPhysical(e)
				require.Equal(t, [2]int{r, i}, [2]int{rank, local})
				require.False(t, seen[[2]int{r, i}])
				seen[[2]int{r, i}] = true
			}
			if r > 0 {
				require.LessOrEqual(t, p.NumLocal(r), p.NumLocal(r-1), "the first ranks own the remainder")
				require.LessOrEqual(t, p.NumLocal(0)-p.NumLocal(r), 1)
			}
		}
		require.Equal(t, p.NumPhysical(), total)
		for e := range p.NumExperts {
			used := map[[2]int]bool{}
			missing := slices.Contains(p.Missing(), e)
			require.Equal(t, !missing, table.Has(int32(e)))
			for token := range 40 {
				rank, local := p.Place(token, e)
				if !missing {
					require.Equal(t, e, p.LogicalOf(rank, local))
				}
				wantRank, wantLocal := dealtPlace(p, token, e)
				require.Equal(t, [2]int{wantRank, wantLocal}, [2]int{rank, local})
				used[[2]int{rank, local}] = true
				fastRank, fastLocal := table.Place(token, int32(e))
				require.Equal(t, [2]int{rank, local}, [2]int{int(fastRank), int(fastLocal)})
			}
			replicas := 1
			if p.Physical != nil {
				replicas = 0
				for _, l := range p.Physical {
					if int(l) == e {
						replicas++
					}
				}
			}
			require.Equal(t, missing, replicas == 0)
			require.Len(t, used, max(replicas, 1), "every replica is used")
			rank, local := p.Owner(e)
			require.True(t, used[[2]int{rank, local}])
		}
		require.False(t, table.Has(-1))
		require.False(t, table.Has(int32(p.NumExperts)))
	})
}

func TestPlacementErrors(t *testing.T) {
	for text, p := range map[string]Placement{
		"0 experts": {Size: 2},
		"0 ranks":   {NumExperts: 3},
		"physical expert 1 is a replica of expert 3, which is outside [0, 3)": {NumExperts: 3, Size: 1, Physical: []int32{0, 3, 1, 2}},
		"expert 2 has no replica among the 3 physical experts":                {NumExperts: 3, Size: 1, Physical: []int32{0, 1, 1}},
	} {
		require.ErrorContains(t, p.Validate(), text)
		_, err := NewPlan(p, nil, 1)
		require.ErrorContains(t, err, text)
	}
	require.Panics(t, func() { Placement{NumExperts: 2, Size: 1, Physical: []int32{0}}.Owner(1) })
}

// The formula equals the mean over all sets of experts, counted one by one.
func TestExpectedCopies(t *testing.T) {
	for _, p := range []Placement{{NumExperts: 6, Size: 3}, {NumExperts: 7, Size: 3}, {NumExperts: 7, Size: 4, RoundRobin: true},
		{NumExperts: 3, Size: 5}, {NumExperts: 5, Size: 1}} {
		for topK := 1; topK <= p.NumExperts; topK++ {
			sets, visits := 0, 0
			for set := range 1 << p.NumExperts {
				if bits.OnesCount(uint(set)) != topK {
					continue
				}
				sets++
				ranks := map[int]bool{}
				for e := range p.NumExperts {
					if set>>e&1 == 1 {
						r, _ := dealtPlace(p, 0, e)
						ranks[r] = true
					}
				}
				visits += len(ranks)
			}
			require.InDelta(t, float64(visits)/float64(sets), p.ExpectedCopies(topK), 1e-12, "%+v top %d", p, topK)
		}
		require.Equal(t, p.ExpectedCopies(p.NumExperts), p.ExpectedCopies(p.NumExperts+3))
	}
}

func ExamplePlacement() {
	p := Placement{NumExperts: 5, Size: 2}
	for e := range p.NumExperts {
		rank, local := p.Owner(e)
		fmt.Printf("expert %d: rank %d, local %d\n", e, rank, local)
	}
	// Output:
	// expert 0: rank 0, local 0
	// expert 1: rank 0, local 1
	// expert 2: rank 0, local 2
	// expert 3: rank 1, local 0
	// expert 4: rank 1, local 1
}
