package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"strings"

	"github.com/weftgo/weft"
	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/comm/rendezvous"
	"github.com/weftgo/weft/cuda"
	"github.com/weftgo/weft/nccl"
	"github.com/weftgo/weft/nccl/ncclworld"
)

// together is run in one of several processes.
func together(ctx context.Context, out io.Writer, job rendezvous.Job, ranks, gpu int) (err error) {
	client, err := rendezvous.Join(ctx, job, rendezvous.Config{})
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = client.Abort(ctx, err) // the others learn why; if the store is gone, they know
		}
		err = errors.Join(err, client.Leave(ctx))
	}()
	alive, cancel := client.Context(ctx) // ends when another process is lost
	defer cancel()
	gpus := job.LocalSize
	if gpu >= 0 {
		gpus = gpu + 1
	} else {
		gpu = job.LocalRank
	}
	why, err := noGPUs(alive, client, gpus)
	if err != nil {
		return err
	}
	if why == "" {
		return overNCCL(alive, out, client, gpu)
	}
	if job.Rank == 0 {
		slog.Info("the processes add through their store", "because", why)
	}
	return overStore(alive, out, client, ranks)
}

// noGPUs says why the processes cannot use NCCL and so many GPUs on each node; "" when all can. It is the same in all processes.
func noGPUs(ctx context.Context, client *rendezvous.Client, gpus int) (string, error) {
	job, mine := client.Job(), ""
	if n, err := cuda.Count(); err != nil {
		mine = err.Error()
	} else if n < gpus {
		mine = fmt.Sprintf("%d GPUs where %d are needed", n, gpus)
	} else if err := nccl.Init(); err != nil {
		mine = err.Error()
	}
	all, err := rendezvous.Exchange(ctx, client, "driver", job.Rank, job.Size, []byte(mine))
	for rank, why := range all {
		if len(why) > 0 {
			first, _, _ := strings.Cut(string(why), "\n")
			return fmt.Sprintf("process %d: %s", rank, first), nil
		}
	}
	return "", err
}

// overNCCL adds with one rank and one GPU a process.
func overNCCL(ctx context.Context, out io.Writer, client *rendezvous.Client, gpu int) error {
	job := client.Job()
	world, err := ncclworld.Open(ctx, ncclworld.Config{Devices: []comm.Device{{Kind: comm.CUDA, Index: gpu}}, First: job.Rank, Size: job.Size, Store: client})
	if err != nil {
		return err
	}
	defer world.Close(ctx)
	defer client.Guard(world)()
	return world.Run(ctx, func(ctx context.Context, c *comm.Comm) error {
		var s comm.Stream
		host := vector(c.Rank())
		x, err := comm.Alloc(c, host.DType(), host.Rows(), host.Cols())
		if err != nil {
			return err
		}
		defer comm.Free(c, x)
		err = errors.Join(comm.Copy(c, s, x, host), c.AllReduce(s, x, x, comm.Sum), comm.Copy(c, s, host, x), c.Wait(ctx, s))
		if err != nil {
			return err
		}
		return report(out, host, c.Rank(), c.Size(), job.Size, "nccl")
	})
}

// overStore adds in two levels: the ranks of each process by the CPU driver, the processes' sums, in order of processes, through
// the store, and back by a broadcast.
func overStore(ctx context.Context, out io.Writer, client *rendezvous.Client, ranks int) error {
	job := client.Job()
	world, err := weft.Open(ctx, weft.Config{Ranks: ranks})
	if err != nil {
		return err
	}
	defer world.Close(ctx)
	defer client.Guard(world)()
	return world.Run(ctx, func(ctx context.Context, c *comm.Comm) error {
		var s comm.Stream
		rank := job.Rank*ranks + c.Rank()
		x := vector(rank)
		if err := c.Reduce(s, x, x, comm.Sum, 0); err != nil {
			return err
		}
		if c.Rank() == 0 {
			if err := addProcesses(ctx, client, x); err != nil {
				return err
			}
		}
		if err := c.Broadcast(s, x, 0); err != nil {
			return err
		}
		return report(out, x, rank, job.Size*ranks, job.Size, "the store")
	})
}

// addProcesses replaces x by its sum over all processes, in order of processes.
func addProcesses(ctx context.Context, client *rendezvous.Client, x comm.Buffer) error {
	sum, err := comm.View[float32](x)
	if err != nil {
		return err
	}
	var mine []byte
	for _, v := range sum {
		mine = binary.LittleEndian.AppendUint32(mine, math.Float32bits(v))
	}
	all, err := rendezvous.Exchange(ctx, client, "sum", client.Job().Rank, client.Job().Size, mine)
	if err != nil {
		return err
	}
	clear(sum)
	for p, b := range all {
		if len(b) != len(mine) {
			return fmt.Errorf("process %d sent %d bytes, not %d", p, len(b), len(mine))
		}
		for i := range sum {
			sum[i] += math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
		}
	}
	return nil
}

// vector is what a rank contributes: one row of three columns.
func vector(rank int) comm.Buffer {
	r := float32(rank)
	return comm.Of([]float32{1, r, r * r}, 3)
}

// report checks the sum on every rank, and prints it on rank 0.
func report(out io.Writer, x comm.Buffer, rank, size, processes int, by string) error {
	sum, err := comm.View[float32](x)
	if err != nil {
		return err
	}
	n := float32(size)
	if want := [3]float32{n, n * (n - 1) / 2, n * (n - 1) * (2*n - 1) / 6}; [3]float32(sum) != want {
		return fmt.Errorf("rank %d has %v, not %v", rank, sum, want)
	}
	if rank == 0 {
		fmt.Fprintf(out, "%d ranks of %d processes, the sum of {1, rank, rank*rank} is %v, by %s\n", size, processes, sum, by)
	}
	return nil
}
