package routing

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestIndexMatchesOracle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := &Index{}
		for range 3 {
			topK := rapid.IntRange(1, 6).Draw(t, "topK")
			numLocal := rapid.IntRange(0, 9).Draw(t, "numLocal")
			alignment := rapid.IntRange(0, 17).Draw(t, "alignment")
			n := rapid.IntRange(0, 40).Draw(t, "rows") * topK
			locals := rapid.SliceOfN(rapid.OneOf(rapid.Int32Range(-1, int32(numLocal)), rapid.Int32()), n, n).Draw(t, "locals")
			weights := make([]float32, n)
			for i := range weights {
				weights[i] = float32(i + 1)
			}
			x.Build(locals, weights, topK, numLocal, alignment)
			requireIndex(t, x, locals, weights, topK, numLocal, max(alignment, 1))
		}
	})
}

// requireIndex finds each expert's slots by a search over all rows.
func requireIndex(t require.TestingT, x *Index, locals []int32, weights []float32, topK, numLocal, alignment int) {
	at, trueSlots, listed := 0, 0, 0
	for e := range numLocal {
		require.EqualValues(t, at, x.Offsets[e])
		count := 0
		for row := range len(locals) / topK {
			for k := range topK {
				if i := row*topK + k; locals[i] == int32(e) {
					require.Equal(t, int32(row), x.Row[at])
					require.Equal(t, int32(k), x.K[at])
					require.Equal(t, weights[i], x.Weight[at])
					require.EqualValues(t, at, x.Slot[i])
					at++
					count++
				}
			}
		}
		require.EqualValues(t, count, x.Counts[e])
		trueSlots += count
		padded := count
		for padded%alignment != 0 {
			require.Equal(t, int32(-1), x.Row[at])
			require.Equal(t, int32(-1), x.K[at])
			require.Zero(t, x.Weight[at])
			at++
			padded++
		}
		require.EqualValues(t, padded, x.Counts[numLocal+e])
	}
	require.Equal(t, at, x.NumSlots())
	require.Len(t, x.Offsets, numLocal+1)
	require.EqualValues(t, at, x.Offsets[numLocal])
	require.Equal(t, trueSlots, x.NumTrue)
	for _, s := range x.Slot {
		if s >= 0 {
			listed++
		}
	}
	require.Equal(t, trueSlots, listed)
}

func TestLocalsAreThePlansView(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawPlacement(t)
		table, err := NewTable(p)
		require.NoError(t, err)
		topK := rapid.IntRange(1, 5).Draw(t, "topK")
		ids := drawIDs(t, p.NumExperts, topK)
		source := rapid.IntRange(0, p.Size-1).Draw(t, "source")
		got := make([]int32, len(ids))
		want, _ := naivePlan(p, source, ids, topK)
		for d := range p.Size {
			table.Locals(got, ids, topK, source, d)
			full := make([]int32, len(ids))
			for i := range full {
				full[i] = -1
			}
			for _, c := range want[d] {
				copy(full[c.token*topK:], c.locals)
			}
			require.Equal(t, full, got)
		}
	})
}

func ExampleBuildIndex() {
	// Two received rows, two choices each: row 0 wants local expert 1, row 1 wants 0 and 1.
	x := BuildIndex([]int32{1, -1, 0, 1}, []float32{0.5, 0.5, 0.25, 0.75}, 2, 2, 2)
	fmt.Println("offsets", x.Offsets)
	fmt.Println("rows   ", x.Row)
	fmt.Println("weights", x.Weight)
	// Output:
	// offsets [0 2 4]
	// rows    [1 -1 0 1]
	// weights [0.25 0 0.5 0.75]
}
