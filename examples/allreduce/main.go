// Command allreduce adds a vector over all ranks of a world: the smallest whole program.
//
//	go run ./examples/allreduce -ranks 8
//
// It also runs as one of several processes, started by whom you like, and then adds over the ranks of all of them:
//
//	weft launch -n 2 -- allreduce -ranks 4
//	torchrun --nproc-per-node 2 --no-python allreduce
//	mpirun -n 2 allreduce
//	srun -n 2 allreduce
//
// Processes that each have a GPU use NCCL, one rank a process. Others add within each process by shared memory, and between them
// through the store by which they found each other: good for a few numbers, and for trying all this without a GPU.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"

	"github.com/weftgo/weft"
	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/comm/rendezvous"
)

func main() {
	ranks := flag.Int("ranks", 8, "number of ranks of this process; any number runs on any machine")
	gpu := flag.Int("gpu", -1, "GPU of this process, if it is one of several; -1 is its number on its node")
	flag.Parse()
	if err := run(context.Background(), os.Stdout, *ranks, *gpu); err != nil {
		log.Fatal(err)
	}
}

// run finds out whether this process is the only one.
func run(ctx context.Context, out io.Writer, ranks, gpu int) error {
	job, err := rendezvous.FromEnv(slog.Default())
	if err != nil {
		return err
	}
	if job.Size > 1 {
		return together(ctx, out, job, ranks, gpu)
	}
	return alone(ctx, out, ranks)
}

// alone opens a world, lets each rank contribute {1, rank, rank*rank} and prints what rank 0 has then, which all have.
func alone(ctx context.Context, out io.Writer, ranks int) error {
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
