package suite_test

import (
	"context"
	"fmt"

	"github.com/weftgo/weft/benchmarks/suite"
	"github.com/weftgo/weft/comm/local"
	"github.com/weftgo/weft/dtype"
)

// Times one size of one operation and checks it three times.
func Example() {
	ctx := context.Background()
	world, err := local.Open(local.Config{Ranks: 4})
	if err != nil {
		panic(err)
	}
	defer world.Close(ctx)
	op, err := suite.Find("reduce_scatterv")
	if err != nil {
		panic(err)
	}
	bench, err := suite.New(world, suite.Setup{Op: op, Type: dtype.BF16, Load: suite.Load{Skew: 0.5}})
	if err != nil {
		panic(err)
	}
	res, err := bench.Measure(ctx, 64<<10, false, suite.Timing{Warmup: 1, Iters: 5, Average: suite.Max}, 3)
	if err != nil {
		panic(err)
	}
	fmt.Println(bench.ShapeOf(64<<10).Counts, "elements,", res.Wrong, "wrong, faster than light:", res.TimeUs <= 0)
	// Output: [16384 5462 5461 5461] elements, 0 wrong, faster than light: false
}
