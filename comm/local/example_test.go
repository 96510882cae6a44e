package local_test

import (
	"context"
	"fmt"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/comm/local"
)

// Eight ranks in two groups of four; each group adds its own ranks' numbers.
func Example() {
	ctx := context.Background()
	world, err := local.Open(local.Config{Ranks: 8})
	if err != nil {
		panic(err)
	}
	defer world.Close(ctx)
	err = world.Run(ctx, func(ctx context.Context, c *comm.Comm) error {
		group, err := c.Split(ctx, c.Rank()/4, c.Rank())
		if err != nil {
			return err
		}
		defer group.Close(ctx)
		x := []int32{int32(c.Rank())}
		if err := group.AllReduce(comm.Stream{}, comm.Of(x, 1), comm.Of(x, 1), comm.Sum); err != nil {
			return err
		}
		if c.Rank() == 7 {
			fmt.Printf("rank %d of %d in the group: %d\n", group.Rank(), group.Size(), x[0])
		}
		return nil
	})
	if err != nil {
		panic(err)
	}
	// Output: rank 3 of 4 in the group: 22
}
