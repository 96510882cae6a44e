package routing

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// loadOf is the load of the fullest rank when every replica takes its share.
func loadOf(p Placement, loads []int64) (most float64) {
	for _, hand := range deal(p) {
		sum := 0.0
		for _, e := range hand {
			n := 0
			for _, other := range p.Physical {
				if other == e {
					n++
				}
			}
			sum += float64(loads[e]) / float64(n)
		}
		most = max(most, sum)
	}
	return most
}

// Every expert has a place, none twice on a rank, and replicas are given out to who has the most load for each.
func TestBalance(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		loads := rapid.SliceOfN(rapid.Int64Range(0, 1000), 1, 40).Draw(t, "loads")
		size := rapid.IntRange(1, 12).Draw(t, "ranks")
		extra := rapid.IntRange(0, 30).Draw(t, "extra")
		p, err := Balance(loads, size, extra)
		require.NoError(t, err)
		require.NoError(t, p.Validate())
		require.Equal(t, len(loads)+min(extra, len(loads)*(size-1)), p.NumPhysical())
		replicas := make([]int, len(loads))
		for r, hand := range deal(p) {
			require.Len(t, hand, p.NumLocal(r))
			seen := map[int32]bool{}
			for _, e := range hand {
				require.False(t, seen[e], "expert %d twice on rank %d", e, r)
				seen[e] = true
				replicas[e]++
			}
		}
		// No expert could give one of its extra replicas to another and lower the largest share.
		for a, n := range replicas {
			for b, m := range replicas {
				if m > 1 && n < size {
					require.GreaterOrEqual(t, float64(loads[b])/float64(m-1), float64(loads[a])/float64(n))
				}
			}
		}
		again, err := Balance(loads, size, extra)
		require.NoError(t, err)
		require.Equal(t, p, again)
	})
}

// With skewed loads the fullest rank is nearer to the mean than in blocks, by how much is printed.
func TestBalanceEvensOut(t *testing.T) {
	for _, extra := range []int{0, 8, 32} {
		loads := make([]int64, 64)
		sum := int64(0)
		for e := range loads {
			loads[e] = int64(100_000 / (e + 1)) // Zipf
			sum += loads[e]
		}
		mean := float64(sum) / 8
		blocks := Placement{NumExperts: 64, Size: 8}
		for e := range 64 {
			blocks.Physical = append(blocks.Physical, int32(e))
		}
		p, err := Balance(loads, 8, extra)
		require.NoError(t, err)
		before, after := loadOf(blocks, loads)/mean, loadOf(p, loads)/mean
		t.Logf("%d extra replicas: fullest rank %.2f of the mean in blocks, %.2f balanced", extra, before, after)
		require.Less(t, after, before)
		if extra > 0 {
			require.Less(t, after, 1.15)
		}
	}
}

func TestBalanceErrors(t *testing.T) {
	for text, call := range map[string]func() (Placement, error){
		"1 experts on 65537 ranks; at most 65536": func() (Placement, error) { return Balance([]int64{1}, 1<<16+1, 0) },
		"65537 extra replicas":                    func() (Placement, error) { return Balance([]int64{1}, 1, 1<<16+1) },
		"0 experts on 2 ranks":                    func() (Placement, error) { return Balance(nil, 2, 0) },
		"1 experts on 0 ranks":                    func() (Placement, error) { return Balance([]int64{1}, 0, 0) },
		"-1 extra replicas":                       func() (Placement, error) { return Balance([]int64{1}, 1, -1) },
		"expert 1 has a load of -5":               func() (Placement, error) { return Balance([]int64{1, -5}, 1, 0) },
	} {
		_, err := call()
		require.ErrorContains(t, err, text)
	}
}

func ExampleBalance() {
	// Expert 2 takes most of the tokens; two extra replicas share them.
	p, err := Balance([]int64{10, 20, 600, 30}, 3, 2)
	if err != nil {
		fmt.Println(err)
		return
	}
	for r := range p.Size {
		var experts []int
		for i := range p.NumLocal(r) {
			experts = append(experts, p.LogicalOf(r, i))
		}
		fmt.Println("rank", r, "has experts", experts)
	}
	// Output:
	// rank 0 has experts [2 3]
	// rank 1 has experts [1 2]
	// rank 2 has experts [0 2]
}
