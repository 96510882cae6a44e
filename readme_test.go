package weft_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft"
	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/ep"
)

// moeLayer is the program of the README, line for line (TestReadme holds them together).
func moeLayer(ctx context.Context, experts, k, hidden int, batch func(rank int) (x []float32, ids []int32, weights []float32),
	myExpert func(expert int, y, x comm.Buffer), use func(rank int, out []float32)) error {
	world, err := weft.Open(ctx, weft.Config{Ranks: 8})
	if err != nil {
		return err
	}
	defer world.Close(ctx)
	return world.Run(ctx, func(ctx context.Context, c *comm.Comm) error {
		ex, err := weft.NewExchanger(ctx, c, "alltoall", ep.Config{NumExperts: experts, TopK: k, Hidden: hidden,
			MaxTokensPerRank: 512, Layout: ep.Expanded})
		if err != nil {
			return err
		}
		x, ids, weights := batch(c.Rank()) // [tokens, hidden], [tokens, k], [tokens, k]: any number of tokens, also none
		r, err := ex.Dispatch(comm.Stream{}, comm.Of(x, hidden), ep.Routing{IDs: comm.Of(ids, k), Weights: comm.Of(weights, k)})
		if err != nil {
			return err
		}
		for e, rows := range r.Experts(ctx) { // the experts of this rank, each with the rows that chose it
			myExpert(ex.Config().Placement.LogicalOf(c.Rank(), e), r.Y.Slice(rows[0], rows[1]), r.X.Slice(rows[0], rows[1]))
		}
		out := make([]float32, len(x))
		if err := ex.Combine(comm.Stream{}, comm.Of(out, hidden), r.Y, r); err != nil {
			return err
		}
		use(c.Rank(), out)
		return nil
	})
}

func TestReadme(t *testing.T) {
	self, err := os.ReadFile("readme_test.go")
	require.NoError(t, err)
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	_, rest, ok := strings.Cut(string(readme), "```go\n")
	require.True(t, ok, "README.md has no Go block")
	block, _, ok := strings.Cut(rest, "```")
	require.True(t, ok)
	for line := range strings.Lines(block) {
		require.Contains(t, string(self), strings.TrimSpace(line))
	}
}

func Example() {
	err := moeLayer(context.Background(), 16, 2, 4,
		func(rank int) ([]float32, []int32, []float32) {
			if rank != 3 {
				return nil, nil, nil
			}
			return []float32{1, 2, 3, 4}, []int32{5, 9}, []float32{0.5, 0.5}
		},
		func(expert int, y, x comm.Buffer) {
			for i := range x.Rows() {
				for j, v := range comm.Row[float32](x, i) {
					comm.Row[float32](y, i)[j] = v + float32(expert)
				}
			}
		},
		func(rank int, out []float32) {
			if rank == 3 {
				fmt.Println("token of rank 3:", out)
			}
		})
	if err != nil {
		fmt.Println(err)
	}
	// Output: token of rank 3: [8 9 10 11]
}
