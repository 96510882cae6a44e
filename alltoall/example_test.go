package alltoall_test

import (
	"context"
	"fmt"

	"github.com/weftgo/weft/alltoall"
	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/comm/local"
	"github.com/weftgo/weft/ep"
)

// Two ranks, four experts, one token on each rank that chooses experts 0 and 3, or 2 and 3. Expert e multiplies by e+1.
func Example() {
	ctx := context.Background()
	world, err := local.Open(local.Config{Ranks: 2})
	if err != nil {
		panic(err)
	}
	defer world.Close(ctx)
	lines := make([]string, 2)
	err = world.Run(ctx, func(ctx context.Context, c *comm.Comm) error {
		ex, err := alltoall.New(ctx, c, ep.Config{NumExperts: 4, TopK: 2, Hidden: 1, MaxTokensPerRank: 1})
		if err != nil {
			return err
		}
		defer ex.Close(ctx)
		x := []float32{10}
		ids := [][]int32{{0, 3}, {2, 3}}[c.Rank()]
		r, err := ex.Dispatch(comm.Stream{}, comm.Of(x, 1), ep.Routing{IDs: comm.Of(ids, 2), Weights: comm.Of([]float32{0.5, 0.25}, 2)})
		if err != nil {
			return err
		}
		rows := r.X.Rows()
		for e, slots := range r.Experts(ctx) {
			factor := float32(ex.Config().Placement.LogicalOf(c.Rank(), e) + 1)
			for s := slots[0]; s < slots[1]; s++ {
				row := comm.Row[int32](r.Index.Row, 0)[s]
				comm.Row[float32](r.Y, s)[0] = factor * comm.Row[float32](r.X, int(row))[0]
			}
		}
		if err := ex.Combine(comm.Stream{}, comm.Of(x, 1), r.Y, r); err != nil {
			return err
		}
		lines[c.Rank()] = fmt.Sprintf("rank %d received %d rows, out %v", c.Rank(), rows, x)
		return nil
	})
	if err != nil {
		panic(err)
	}
	fmt.Println(lines[0])
	fmt.Println(lines[1])
	// Output:
	// rank 0 received 1 rows, out [15]
	// rank 1 received 2 rows, out [25]
}
