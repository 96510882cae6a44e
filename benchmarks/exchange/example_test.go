package exchange_test

import (
	"context"
	"fmt"

	"github.com/weftgo/weft/benchmarks/exchange"
	"github.com/weftgo/weft/benchmarks/suite"
	"github.com/weftgo/weft/comm/local"
	"github.com/weftgo/weft/dtype"
)

// Measures dispatch and combine of a small model on four ranks: gathering everything makes four copies of a token.
func Example() {
	ctx := context.Background()
	world, err := local.Open(local.Config{Ranks: 4})
	if err != nil {
		panic(err)
	}
	defer world.Close(ctx)
	cell := exchange.Setup{Backend: "agrs", Tokens: []int{8, 8, 0, 8}, Hidden: 64, Experts: 16, TopK: 2, Type: dtype.F32}
	results, err := exchange.Measure(ctx, world, cell, []string{"dispatch", "combine"}, suite.Timing{Iters: 3}, 1)
	if err != nil {
		panic(err)
	}
	for _, r := range results {
		fmt.Println(r.Op, r.Backend, r.CopiesPerToken, "copies of a token,", r.Wrong, "wrong")
	}
	// Output:
	// dispatch agrs 4 copies of a token, 0 wrong
	// combine agrs 4 copies of a token, 0 wrong
}
