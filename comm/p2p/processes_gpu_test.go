package p2p_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/comm/p2p"
	"github.com/weftgo/weft/comm/rendezvous"
	"github.com/weftgo/weft/dtype"
	"github.com/weftgo/weft/internal/gputest"
	"github.com/weftgo/weft/internal/proctest"
	"github.com/weftgo/weft/symm"
	"github.com/weftgo/weft/symm/ipc"
)

// report logs what the processes measured.
func report(t *testing.T, r *proctest.Result) {
	for i, out := range r.Output {
		for _, m := range regexp.MustCompile(`measured: .*`).FindAllString(out, -1) {
			t.Logf("process %d: %s", i, m)
		}
	}
	t.Logf("measured: all in %v", r.Elapsed.Round(time.Millisecond))
}

// openSpan opens this process's part of a world with ranks here in each process of the job.
func openSpan(t *testing.T, store *rendezvous.Client, here int, timeout time.Duration, memory symm.Memory) *comm.World {
	start := time.Now()
	devices := make([]comm.Device, here)
	for i := range devices {
		devices[i] = comm.Device{Kind: comm.CUDA}
	}
	job := store.Job()
	w, err := p2p.Open(t.Context(), p2p.Config{Devices: devices, FirstRank: job.Rank * here, Size: job.Size * here, Store: store,
		Memory: memory, Workspace: 128 << 20, Timeout: timeout})
	require.NoError(t, err)
	t.Logf("measured: open %v", time.Since(start).Round(time.Millisecond))
	return w
}

// span runs the checks of a world on one GPU in several processes over CUDA IPC, whose handles are the default.
func span(t *testing.T, processes, here, cases int, memory symm.Memory) {
	if !proctest.Child() {
		gputest.Device(t)
	}
	store, r := proctest.Run(t, proctest.Config{Processes: processes, Timeout: 100 * time.Second})
	if r != nil {
		report(t, r)
		return
	}
	d := gputest.Device(t)
	before := d.Alive()
	w := openSpan(t, store, here, 30*time.Second, memory)
	t.Log("measured: " + proctest.World(t, w, cases))
	start := time.Now()
	require.NoError(t, w.Close(t.Context()))
	t.Logf("measured: close %v", time.Since(start).Round(time.Millisecond))
	require.Equal(t, before, d.Alive(), "allocations of the device")
}

func TestIPCTwoProcesses(t *testing.T)       { span(t, 2, 1, 300, nil) }
func TestIPCEightProcesses(t *testing.T)     { span(t, 8, 1, 80, nil) }
func TestIPCTwoProcessesOfFour(t *testing.T) { span(t, 2, 4, 200, nil) }

func TestDescriptorsTwoProcessesOfTwo(t *testing.T) { span(t, 2, 2, 60, ipc.Descriptors{}) }

// failing runs fn in four processes, of which one dies or stalls, and checks what the others get from a barrier.
func failing(t *testing.T, dies int, timeout time.Duration, victim func(w *comm.World), check func(t *testing.T, err error, took time.Duration)) {
	if !proctest.Child() {
		gputest.Device(t)
	}
	store, r := proctest.Run(t, proctest.Config{Processes: 4, Timeout: 90 * time.Second, Dies: dies})
	if r != nil {
		report(t, r)
		require.Len(t, r.Failed, dies)
		return
	}
	gputest.Device(t)
	w := openSpan(t, store, 1, timeout, nil)
	c := w.Local()[0]
	require.NoError(t, c.Barrier(comm.Stream{}))
	require.NoError(t, c.Wait(t.Context(), comm.Stream{}))
	if c.Rank() == 2 {
		victim(w)
	}
	start := time.Now()
	err := w.Run(t.Context(), func(ctx context.Context, c *comm.Comm) error {
		if c.Rank() == 2 {
			<-w.Done()
			return nil
		}
		return errors.Join(c.Barrier(comm.Stream{}), c.Wait(ctx, comm.Stream{}))
	})
	took := time.Since(start)
	t.Logf("measured: after %v: %v", took.Round(time.Millisecond), err)
	if c.Rank() != 2 {
		check(t, err, took)
	}
	start = time.Now()
	_ = w.Close(t.Context()) // it may say that the world is dead
	require.Less(t, time.Since(start), 5*time.Second, "close of a dead world")
}

// TestIPCKilled kills a process between two barriers.
func TestIPCKilled(t *testing.T) {
	failing(t, 1, 20*time.Second, func(*comm.World) { proctest.Die() }, func(t *testing.T, err error, took time.Duration) {
		require.Error(t, err)
		require.Truef(t, errors.Is(err, comm.Aborted) || errors.Is(err, comm.Remote), "%v", err)
		require.ErrorContains(t, err, "rank 2")
		require.Less(t, took, 10*time.Second)
	})
}

// TestIPCStalled lets a rank miss a barrier: the kernels of the others give up.
func TestIPCStalled(t *testing.T) {
	failing(t, 0, 3*time.Second, func(w *comm.World) {}, func(t *testing.T, err error, took time.Duration) {
		require.Error(t, err)
		require.Truef(t, errors.Is(err, comm.Timeout) || errors.Is(err, comm.Aborted), "%v", err)
		require.ErrorContains(t, err, "rank 2")
		require.Less(t, took, 12*time.Second)
	})
}

// TestIPCDisagree lets ranks of two processes call different things: both processes say what each called.
func TestIPCDisagree(t *testing.T) {
	if !proctest.Child() {
		gputest.Device(t)
	}
	store, r := proctest.Run(t, proctest.Config{Processes: 2, Timeout: 90 * time.Second})
	if r != nil {
		report(t, r)
		return
	}
	gputest.Device(t)
	w := openSpan(t, store, 1, 10*time.Second, nil)
	c := w.Local()[0]
	x, err := comm.Alloc(c, dtype.F32, 4, 5)
	require.NoError(t, err)
	if c.Rank() == 0 {
		err = c.AllReduce(comm.Stream{}, x, x, comm.Max)
	} else {
		err = c.Broadcast(comm.Stream{}, x, 1)
	}
	require.NoError(t, err)
	err = c.Wait(t.Context(), comm.Stream{})
	t.Logf("measured: %v", err)
	require.ErrorIs(t, err, comm.Invalid)
	require.ErrorContains(t, err, "rank 0 calls all_reduce")
	require.ErrorContains(t, err, "rank 1 calls broadcast")
	err = c.AllReduce(comm.Stream{}, comm.At(c.Device(), 1<<40, dtype.F32, 4, 5, 5), x, comm.Sum)
	require.ErrorIs(t, err, comm.Invalid, "memory that the other process does not map")
	require.NoError(t, w.Close(t.Context()))
}

// TestIPCAbsent lets a process join the store and never open the world.
func TestIPCAbsent(t *testing.T) {
	if !proctest.Child() {
		gputest.Device(t)
	}
	store, r := proctest.Run(t, proctest.Config{Processes: 2, Timeout: 90 * time.Second})
	if r != nil {
		report(t, r)
		return
	}
	gputest.Device(t)
	ctx := t.Context()
	if store.Job().Rank == 1 {
		_, err := store.Get(ctx, "over")
		require.NoError(t, err)
		return
	}
	start := time.Now()
	_, err := p2p.Open(ctx, p2p.Config{Devices: []comm.Device{{Kind: comm.CUDA}}, Size: 2, Store: store, Timeout: 2 * time.Second})
	t.Logf("measured: after %v: %v", time.Since(start).Round(time.Millisecond), err)
	require.ErrorIs(t, err, comm.Timeout)
	require.Less(t, time.Since(start), 8*time.Second)
	require.True(t, strings.Contains(fmt.Sprint(err), "1"), "it names rank 1: %v", err)
	require.NoError(t, store.Set(ctx, "over", nil))
}
