package ipc_test

import (
	"context"
	"log"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/comm/p2p"
	"github.com/weftgo/weft/comm/rendezvous"
	"github.com/weftgo/weft/symm/ipc"
)

// A process of a job of one node, with a GPU of its own. The memory of all ranks is mapped by file descriptors, as where
// containers have no CUDA IPC; without the field it is CUDA IPC. (It needs GPUs, so it is compiled here and not run.)
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
	world, err := p2p.Open(ctx, p2p.Config{Devices: []comm.Device{{Kind: comm.CUDA, Index: job.LocalRank}},
		FirstRank: job.Rank, Size: job.Size, Store: store, Memory: ipc.Descriptors{}})
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
