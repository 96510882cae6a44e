package ncclworld_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/comm/rendezvous"
	"github.com/weftgo/weft/cuda"
	"github.com/weftgo/weft/dtype"
	"github.com/weftgo/weft/internal/gputest"
	"github.com/weftgo/weft/nccl"
	"github.com/weftgo/weft/nccl/ncclworld"
)

// The tests of several processes run this binary again, once for each rank, all on GPU 0. NCCL takes them for ranks of
// different machines because NCCL_HOSTID differs, and carries the data through sockets of the loopback device.

// gpu returns the first GPU and a stream, or skips; also without the library.
func gpu(t *testing.T) (*cuda.Device, *cuda.Stream) {
	t.Helper()
	d := gputest.Device(t)
	gputest.Library(t, nccl.Init())
	s, err := d.NewStream(0)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return d, s
}

// jobs are what a process of a world may be.
var jobs = map[string]func(ctx context.Context, w *comm.World, c *comm.Comm) error{
	"oracle":  oracle,
	"padded":  oracle,
	"message": oracle,
	"hang":    hang,
	"late":    late,
	"killed":  killed,
	"split":   splitJob,
	"enqueue": enqueueJob,
}

func env(name string) int {
	n, _ := strconv.Atoi(os.Getenv(name))
	return n
}

// child is one process: it opens its part of the world and runs the job.
func child(name string) error {
	rank, size := env("WEFT_TEST_RANK"), env("WEFT_TEST_SIZE")
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Second)
	defer cancel()
	client, err := rendezvous.Join(ctx, rendezvous.Job{Rank: rank, Size: size, LocalRank: rank, LocalSize: size,
		Address: os.Getenv("WEFT_TEST_ADDRESS"), Token: "test", Family: "weft"}, rendezvous.Config{})
	if err != nil {
		return err
	}
	cfg := ncclworld.Config{Devices: []comm.Device{{Kind: comm.CUDA}}, First: rank, Size: size, Store: client,
		Timeout: time.Duration(env("WEFT_TEST_TIMEOUT")) * time.Second, OpenTimeout: time.Duration(env("WEFT_TEST_OPEN")) * time.Second}
	cfg.Options.Blocking = env("WEFT_TEST_BLOCKING") != 0
	switch name {
	case "padded":
		cfg.Ragged = ncclworld.Padded
	case "message":
		cfg.Ragged = ncclworld.Messages
	}
	if name == "absent" { // never opens
		time.Sleep(3 * time.Second)
		return client.Leave(ctx)
	}
	begin := time.Now()
	w, err := ncclworld.Open(ctx, cfg)
	if err != nil {
		_ = client.Leave(ctx)
		return fmt.Errorf("rank %d: open after %v: %w", rank, time.Since(begin).Round(time.Millisecond), err)
	}
	fmt.Printf("rank %d: open took %v\n", rank, time.Since(begin).Round(time.Millisecond))
	err = w.Run(ctx, func(ctx context.Context, c *comm.Comm) error { return jobs[name](ctx, w, c) })
	begin = time.Now()
	closed := w.Close(ctx)
	fmt.Printf("rank %d: close took %v: %v\n", rank, time.Since(begin).Round(time.Millisecond), closed)
	if err == nil {
		err = errors.Join(closed, client.Leave(ctx))
	} else {
		_ = client.Leave(ctx)
	}
	return err
}

// outcome is how a process ended.
type outcome struct {
	rank   int
	err    error // its exit
	output string
}

// processes runs size processes of a job and returns when all have ended.
func processes(t *testing.T, job string, size int, timeout time.Duration, env ...string) []outcome {
	t.Helper()
	gpu(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := l.Addr().String()
	require.NoError(t, l.Close())
	list := make([]outcome, size)
	var wg sync.WaitGroup
	for rank := range size {
		cmd := exec.Command(os.Args[0])
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		name := job
		if job == "absent" && rank != size-1 {
			name = "oracle"
		}
		cmd.Env = append(append(os.Environ(), childEnv+"="+name, "WEFT_TEST_RANK="+strconv.Itoa(rank), "WEFT_TEST_SIZE="+strconv.Itoa(size),
			"WEFT_TEST_ADDRESS="+address, "WEFT_TEST_TIMEOUT="+strconv.Itoa(int(timeout.Seconds())), "WEFT_TEST_OPEN=60",
			"NCCL_HOSTID=weft-test-"+strconv.Itoa(rank), "NCCL_SOCKET_IFNAME=lo", "NCCL_NVLS_ENABLE=0"), env...)
		require.NoError(t, cmd.Start())
		wg.Go(func() {
			kill := time.AfterFunc(110*time.Second, func() { _ = cmd.Process.Kill() })
			err := cmd.Wait()
			kill.Stop()
			list[rank] = outcome{rank, err, out.String()}
		})
	}
	wg.Wait()
	for _, o := range list {
		t.Logf("rank %d: %v\n%s", o.rank, o.err, tail(o.output, 30))
	}
	return list
}

func tail(s string, n int) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

func TestGPUProcesses(t *testing.T) {
	for _, job := range []string{"oracle", "padded", "message"} {
		t.Run(job, func(t *testing.T) {
			size := 8
			if job != "oracle" {
				size = 3
			}
			for _, o := range processes(t, job, size, 60*time.Second) {
				require.NoError(t, o.err)
				require.Contains(t, o.output, "cases equal comm/local")
			}
		})
	}
	t.Run("split", func(t *testing.T) {
		for _, o := range processes(t, "split", 4, 60*time.Second) {
			require.NoError(t, o.err)
		}
	})
}

// A context ends the wait for a message that never comes, also while NCCL connects.
func TestGPUCancel(t *testing.T) {
	list := processes(t, "hang", 2, 30*time.Second)
	require.Contains(t, list[0].output, "cancelled after")
	require.Contains(t, list[0].output, "the user left")
	require.Contains(t, list[1].output, "told after")
}

// A rank that is late is named, and all are told.
func TestGPULate(t *testing.T) {
	list := processes(t, "late", 3, 2*time.Second)
	for _, rank := range []int{0, 1} {
		require.Contains(t, list[rank].output, "for rank 2", "rank %d", rank)
	}
	require.Contains(t, list[2].output, "(in another process)")
}

// A killed process is an error on every survivor.
func TestGPUKilled(t *testing.T) {
	list := processes(t, "killed", 4, 10*time.Second)
	for _, rank := range []int{0, 1, 3} {
		require.Error(t, list[rank].err)
		require.Contains(t, list[rank].output, "survivor")
		require.Contains(t, list[rank].output, "remote")
	}
}

// A process that never opens its part is an error on the others within the timeout.
func TestGPUAbsent(t *testing.T) {
	list := processes(t, "absent", 3, 2*time.Second, "WEFT_TEST_OPEN=2")
	for _, rank := range []int{0, 1} {
		require.Error(t, list[rank].err)
		require.Contains(t, list[rank].output, "not all of the 3 ranks came within 2s")
	}
}

func hang(ctx context.Context, w *comm.World, c *comm.Comm) error {
	if c.Rank() == 1 {
		begin := time.Now()
		<-w.Done()
		fmt.Printf("told after %v: %v\n", time.Since(begin).Round(time.Millisecond), w.Err())
		return nil
	}
	b, err := comm.Alloc(c, dtype.F32, 1, 4)
	if err != nil {
		return err
	}
	limited, cancel := context.WithCancelCause(ctx)
	stop := time.AfterFunc(500*time.Millisecond, func() { cancel(errors.New("the user left")) })
	defer stop.Stop()
	begin := time.Now()
	abort := context.AfterFunc(limited, func() { w.Abort(context.Cause(limited)) })
	defer abort()
	if err = c.Recv(comm.Stream{}, b, 1); err == nil {
		err = c.Wait(limited, comm.Stream{})
	}
	fmt.Printf("cancelled after %v: %v\n", time.Since(begin).Round(time.Millisecond), err)
	return err
}

func late(ctx context.Context, w *comm.World, c *comm.Comm) error {
	for range 2 { // connect
		if err := barrier(ctx, c); err != nil {
			return err
		}
	}
	begin := time.Now()
	if c.Rank() == 2 {
		<-w.Done()
		fmt.Printf("told after %v: %v\n", time.Since(begin).Round(time.Millisecond), w.Err())
		return nil
	}
	err := barrier(ctx, c)
	fmt.Printf("late: after %v: %v\n", time.Since(begin).Round(time.Millisecond), err)
	return err
}

func barrier(ctx context.Context, c *comm.Comm) error {
	if err := c.Barrier(comm.Stream{}); err != nil {
		return err
	}
	return c.Wait(ctx, comm.Stream{})
}

func killed(ctx context.Context, w *comm.World, c *comm.Comm) error {
	for i := 0; ; i++ {
		begin := time.Now()
		if c.Rank() == 2 && i == 3 {
			p, err := os.FindProcess(os.Getpid())
			if err != nil {
				return err
			}
			return p.Kill()
		}
		if err := barrier(ctx, c); err != nil {
			fmt.Printf("survivor: after %v: %v\n", time.Since(begin).Round(time.Millisecond), err)
			return err
		}
	}
}

// enqueueJob measures what an enqueue costs the host where there is another rank: in bursts that NCCL's queue holds.
func enqueueJob(ctx context.Context, w *comm.World, c *comm.Comm) error {
	b, err := comm.Alloc(c, dtype.F32, 1, 256)
	if err != nil {
		return err
	}
	least := time.Duration(1 << 62)
	for range 12 {
		begin := time.Now()
		for range 8 {
			if err := c.AllReduce(comm.Stream{}, b, b, comm.Sum); err != nil {
				return err
			}
		}
		least = min(least, time.Since(begin)/8)
		if err := c.Wait(ctx, comm.Stream{}); err != nil {
			return err
		}
	}
	fmt.Printf("rank %d: an enqueue of the driver between two processes, blocking %d: %v\n", c.Rank(), env("WEFT_TEST_BLOCKING"), least)
	return nil
}

// What an enqueue costs with blocking and non-blocking communicators.
func TestGPUEnqueue(t *testing.T) {
	for _, blocking := range []string{"0", "1"} {
		for _, o := range processes(t, "enqueue", 2, 30*time.Second, "WEFT_TEST_BLOCKING="+blocking) {
			require.NoError(t, o.err)
			require.Contains(t, o.output, "an enqueue of the driver")
		}
	}
}
