package routing

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// copyOf is a copy as the oracle sees it.
type copyOf struct {
	token  int
	locals []int32
}

// naivePlan walks destinations, tokens and choices, in that order, and looks for what goes there.
func naivePlan(p Placement, source int, ids []int32, topK int) (to [][]copyOf, dropped int) {
	to = make([][]copyOf, p.Size)
	for d := range to {
		for t := range len(ids) / topK {
			c := copyOf{token: t}
			goes := false
			for _, e := range ids[t*topK : (t+1)*topK] {
				local := int32(-1)
				if e >= 0 && int(e) < p.NumExperts {
					if r, l := dealtPlace(p, source+t, int(e)); r == d {
						local, goes = int32(l), true
					}
				}
				c.locals = append(c.locals, local)
			}
			if goes {
				to[d] = append(to[d], c)
			}
		}
	}
	for _, e := range ids {
		if e < 0 || int(e) >= p.NumExperts {
			dropped++
		} else if r, _ := dealtPlace(p, 0, int(e)); r < 0 {
			dropped++
		}
	}
	return to, dropped
}

// requirePlan compares a plan with the oracle's copies, of which the first keep[d] remain.
func requirePlan(t require.TestingT, want [][]copyOf, plan *Plan) {
	c := 0
	byToken := make([][]int32, plan.NumTokens)
	for d, copies := range want {
		require.Equal(t, len(copies), plan.Counts[d])
		require.EqualValues(t, c, plan.Start[d])
		for _, w := range copies {
			require.EqualValues(t, w.token, plan.Tokens[c])
			require.Equal(t, w.locals, plan.Locals[c*plan.TopK:(c+1)*plan.TopK])
			byToken[w.token] = append(byToken[w.token], int32(c))
			c++
		}
	}
	require.EqualValues(t, c, plan.Start[len(want)])
	require.Equal(t, c, plan.NumCopies())
	for tok, w := range byToken {
		require.True(t, slices.Equal(w, plan.ByToken[plan.TokenStart[tok]:plan.TokenStart[tok+1]]), "token %d", tok)
	}
}

func drawIDs(t *rapid.T, numExperts, topK int) []int32 {
	n := rapid.IntRange(0, 30).Draw(t, "tokens")
	return rapid.SliceOfN(rapid.OneOf(rapid.Int32Range(0, int32(numExperts-1)), rapid.Int32Range(-2, int32(numExperts+1)), rapid.Int32()),
		n*topK, n*topK).Draw(t, "ids")
}

func TestPlanMatchesOracle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawPlacement(t)
		table, err := NewTable(p)
		require.NoError(t, err)
		source := rapid.IntRange(0, p.Size-1).Draw(t, "source")
		plan := table.NewPlan(source)
		for range 3 { // the memory of the plan before is used again
			topK := rapid.IntRange(1, 8).Draw(t, "topK")
			ids := drawIDs(t, p.NumExperts, topK)
			require.NoError(t, plan.Build(ids, topK))
			want, dropped := naivePlan(p, source, ids, topK)
			require.Equal(t, dropped, plan.DroppedIDs)
			requirePlan(t, want, plan)

			keep := make([]int, p.Size)
			gone := 0
			for d := range keep {
				keep[d] = rapid.IntRange(0, len(want[d])+1).Draw(t, "keep")
				if keep[d] < len(want[d]) {
					gone += len(want[d]) - keep[d]
					want[d] = want[d][:keep[d]]
				}
			}
			require.Equal(t, gone, plan.Keep(keep))
			requirePlan(t, want, plan)
		}
	})
}

func TestPlanErrors(t *testing.T) {
	p := Placement{NumExperts: 4, Size: 2}
	_, err := NewPlan(p, make([]int32, 7), 2)
	require.ErrorContains(t, err, "7 ids are not a whole number of rows of 2")
	_, err = NewPlan(p, nil, 0)
	require.ErrorContains(t, err, "rows of 0")
	plan, err := NewPlan(p, nil, 3)
	require.NoError(t, err)
	require.Zero(t, plan.NumCopies())
}

func TestBuildAllocatesNothing(t *testing.T) {
	table, err := NewTable(Placement{NumExperts: 64, Size: 8})
	require.NoError(t, err)
	ids := make([]int32, 128*8)
	for i := range ids {
		ids[i] = int32(i * 7 % 64)
	}
	plan := table.NewPlan(3)
	x := &Index{}
	weights := make([]float32, len(ids))
	step := func() {
		require.NoError(t, plan.Build(ids, 8))
		x.Build(plan.Locals[:128*8], weights, 8, 8, 16)
	}
	step()
	require.Zero(t, testing.AllocsPerRun(20, step))
}

func ExampleNewPlan() {
	p := Placement{NumExperts: 6, Size: 2}
	plan, err := NewPlan(p, []int32{
		5, 0, // token 0: one expert on each rank
		1, 0, // token 1: two experts of rank 0, one copy
		4, 4, // token 2: the same expert twice, one copy
	}, 2)
	if err != nil {
		fmt.Println(err)
		return
	}
	for rank := range p.Size {
		copies := plan.Tokens[plan.Start[rank]:plan.Start[rank+1]]
		fmt.Println("rank", rank, "gets tokens", copies)
	}
	// Output:
	// rank 0 gets tokens [0 1]
	// rank 1 gets tokens [0 2]
}

func BenchmarkPlan(b *testing.B) {
	table, err := NewTable(Placement{NumExperts: 128, Size: 8})
	require.NoError(b, err)
	ids := make([]int32, 4096*8)
	for i := range ids {
		ids[i] = int32(i * 37 % 128)
	}
	plan := table.NewPlan(0)
	for b.Loop() {
		if err := plan.Build(ids, 8); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(ids)), "ns/id")
}
