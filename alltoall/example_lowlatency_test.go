package alltoall_test

import (
	"context"
	"fmt"

	"github.com/weftgo/weft/alltoall"
	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/comm/local"
	"github.com/weftgo/weft/ep"
)

// The same two ranks as in the example of the package, in the mode for few tokens and in halves, between which other work
// runs. Rows of rank 1 lie from row MaxTokensPerRank = 8 on; Index.Row says where a slot's row is.
func ExampleExchange_lowLatency() {
	ctx := context.Background()
	world, err := local.Open(local.Config{Ranks: 2})
	if err != nil {
		panic(err)
	}
	defer world.Close(ctx)
	lines := make([]string, 2)
	err = world.Run(ctx, func(ctx context.Context, c *comm.Comm) error {
		ex, err := alltoall.New(ctx, c, ep.Config{NumExperts: 4, TopK: 2, Hidden: 1, MaxTokensPerRank: 8, LowLatency: true})
		if err != nil {
			return err
		}
		defer ex.Close(ctx)
		x, s := []float32{10}, comm.Stream{}
		ids := [][]int32{{0, 3}, {2, 3}}[c.Rank()]
		r, err := ex.DispatchSend(s, comm.Of(x, 1), ep.Routing{IDs: comm.Of(ids, 2), Weights: comm.Of([]float32{0.5, 0.25}, 2)})
		if err != nil {
			return err
		}
		shared := 100 * x[0] // a shared expert, while rows travel
		if err := ex.DispatchRecv(s, r); err != nil {
			return err
		}
		var from []int32
		for e, slots := range r.Experts(ctx) {
			factor := float32(ex.Config().Placement.LogicalOf(c.Rank(), e) + 1)
			for slot := slots[0]; slot < slots[1]; slot++ {
				row := comm.Row[int32](r.Index.Row, 0)[slot]
				from = append(from, row)
				comm.Row[float32](r.Y, slot)[0] = factor * comm.Row[float32](r.X, int(row))[0]
			}
		}
		if err := ex.CombineSend(s, r.Y, r); err != nil {
			return err
		}
		if err := ex.CombineRecv(s, comm.Of(x, 1), r, comm.Of([]float32{shared}, 1)); err != nil {
			return err
		}
		lines[c.Rank()] = fmt.Sprintf("rank %d: slots of rows %v, out %v", c.Rank(), from, x)
		return nil
	})
	if err != nil {
		panic(err)
	}
	fmt.Println(lines[0])
	fmt.Println(lines[1])
	// Output:
	// rank 0: slots of rows [0], out [1015]
	// rank 1: slots of rows [8 0 8], out [1025]
}
