package nvshmem_test

import (
	"context"
	"log"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/comm/p2p"
	"github.com/weftgo/weft/comm/rendezvous"
	"github.com/weftgo/weft/nvshmem"
)

// A process of a job that `weft launch`, torchrun or mpirun started, with a GPU of its own: weft's kernels run over NVSHMEM's
// heap. (It needs GPUs, so it is compiled here and not run.)
func Example() {
	ctx := context.Background()
	job, err := rendezvous.FromEnv(nil)
	if err != nil {
		log.Fatal(err)
	}
	store, err := rendezvous.Join(ctx, job, rendezvous.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Leave(ctx)
	pe, err := nvshmem.Open(ctx, nvshmem.Config{Device: job.LocalRank, Rank: job.Rank, Size: job.Size, Store: store})
	if err != nil {
		log.Fatal(err)
	}
	defer pe.Close(ctx)
	world, err := p2p.Open(ctx, p2p.Config{Devices: []comm.Device{{Kind: comm.CUDA, Index: job.LocalRank}},
		FirstRank: job.Rank, Size: job.Size, Store: store, Memory: pe})
	if err != nil {
		log.Fatal(err)
	}
	defer world.Close(ctx)
	err = world.Run(ctx, func(ctx context.Context, c *comm.Comm) error {
		if err := c.Barrier(comm.Stream{}); err != nil {
			return err
		}
		return c.Wait(ctx, comm.Stream{})
	})
	if err != nil {
		log.Fatal(err)
	}
}
