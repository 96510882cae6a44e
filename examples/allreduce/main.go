// Command allreduce adds a vector over all ranks of a world: the smallest whole program.
//
//	go run ./examples/allreduce -ranks 8
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"os"

	"github.com/weftgo/weft"
	"github.com/weftgo/weft/comm"
)

func main() {
	ranks := flag.Int("ranks", 8, "number of ranks; any number runs on any machine")
	flag.Parse()
	if err := run(context.Background(), os.Stdout, *ranks); err != nil {
		log.Fatal(err)
	}
}

// run opens a world, lets each rank contribute {1, rank, rank*rank} and prints what rank 0 has then, which all have.
func run(ctx context.Context, out io.Writer, ranks int) error {
	world, err := weft.Open(ctx, weft.Config{Ranks: ranks})
	if err != nil {
		return err
	}
	defer world.Close(ctx)
	return world.Run(ctx, func(ctx context.Context, c *comm.Comm) error {
		r := float32(c.Rank())
		x := comm.Of([]float32{1, r, r * r}, 3) // one row of three columns
		if err := c.AllReduce(comm.Stream{}, x, x, comm.Sum); err != nil {
			return err
		}
		if c.Rank() != 0 {
			return nil
		}
		sum, err := comm.View[float32](x)
		fmt.Fprintf(out, "%d ranks, the sum of {1, rank, rank*rank} is %v\n", c.Size(), sum)
		return err
	})
}
