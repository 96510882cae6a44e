package nvshmem_test

import (
	"context"
	"errors"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/comm/p2p"
	"github.com/weftgo/weft/comm/rendezvous"
	"github.com/weftgo/weft/cuda"
	"github.com/weftgo/weft/internal/gputest"
	"github.com/weftgo/weft/internal/proctest"
	"github.com/weftgo/weft/nvshmem"
)

// start runs the test in processes on one GPU; in each of them it returns its PE.
func start(t *testing.T, processes, dies int, timeout time.Duration) (*nvshmem.PE, *rendezvous.Client) {
	if !proctest.Child() {
		gputest.Device(t)
		gputest.Library(t, nvshmem.Init())
	}
	store, r := proctest.Run(t, proctest.Config{Processes: processes, Timeout: timeout, Dies: dies})
	if r != nil {
		for i, out := range r.Output {
			for _, m := range regexp.MustCompile(`measured: .*`).FindAllString(out, -1) {
				t.Logf("process %d: %s", i, m)
			}
		}
		t.Logf("measured: all in %v", r.Elapsed.Round(time.Millisecond))
		return nil, nil
	}
	begin := time.Now()
	job := store.Job()
	pe, err := nvshmem.Open(t.Context(), nvshmem.Config{Rank: job.Rank, Size: job.Size, Store: store, HeapBytes: 256 << 20, Timeout: 30 * time.Second})
	require.NoError(t, err)
	t.Logf("measured: open %v: %v", time.Since(begin).Round(time.Millisecond), pe)
	return pe, store
}

// TestPEs calls what the library allows where PEs share a GPU, and what it does not.
func TestPEs(t *testing.T) {
	pe, _ := start(t, 8, 0, 90*time.Second)
	if pe == nil {
		return
	}
	ctx := t.Context()
	require.True(t, pe.Limited(), "eight PEs on one GPU without MPS")
	s, err := pe.Device().NewStream(0)
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	right, left := (pe.Rank()+1)%pe.Size(), (pe.Rank()+pe.Size()-1)%pe.Size()
	begin := time.Now()
	src, err := pe.Malloc(ctx, 4*n)
	require.NoError(t, err)
	dst, err := pe.Malloc(ctx, 4*n)
	require.NoError(t, err)
	words, err := pe.Malloc(ctx, 64)
	require.NoError(t, err)
	require.NoError(t, s.Fill(words, 0, 64))
	require.NoError(t, s.Wait(ctx))
	for other := range pe.Size() {
		at, err := pe.Ptr(src, other)
		require.NoError(t, err)
		require.NotZero(t, at)
		require.Equal(t, other == pe.Rank(), at == src)
	}
	word := func(i int) uint64 {
		x := make([]uint64, 8)
		require.NoError(t, s.Wait(ctx))
		require.NoError(t, s.Download(cuda.Bytes(x), words))
		return x[i]
	}
	write(t, s, src, pe.Rank())
	require.NoError(t, pe.BarrierAll(ctx))
	require.NoError(t, pe.Put(s, dst, src, 4*n, right))
	require.NoError(t, pe.BarrierAllOnStream(ctx, s))
	read(t, s, dst, left, "put")
	require.NoError(t, pe.BarrierAll(ctx))
	write(t, s, src, 100+pe.Rank())
	require.NoError(t, pe.SyncAll(ctx))
	require.NoError(t, pe.PutSignal(s, dst, src, 4*n, words, 7, nvshmem.SignalSet, right))
	for range 3 {
		require.NoError(t, pe.Signal(s, words+8, 5, nvshmem.SignalAdd, right))
	}
	require.NoError(t, pe.Quiet(s))
	require.NoError(t, pe.SyncAllOnStream(ctx, s))
	for wait := time.Now(); word(0) != 7 || word(1) != 15; { // the host waits for the signals: a wait on the stream is not allowed
		require.Less(t, time.Since(wait), 20*time.Second, "signals %d, %d", word(0), word(1))
	}
	read(t, s, dst, 100+left, "put_signal")
	require.NoError(t, pe.BarrierAll(ctx))
	require.NoError(t, pe.Get(s, dst, src, 4*n, right))
	read(t, s, dst, 100+right, "get")
	require.NoError(t, pe.BarrierAll(ctx))

	const barriers = 20
	at := time.Now()
	for range barriers {
		require.NoError(t, pe.BarrierAll(ctx))
	}
	t.Logf("measured: barrier_all %v, %v in all", (time.Since(at) / barriers).Round(time.Microsecond), time.Since(begin).Round(time.Millisecond))

	refused(t, pe, s, words, dst, src)
	for _, addr := range []uintptr{src, dst, words} {
		require.NoError(t, pe.Free(ctx, addr))
	}
	require.NoError(t, pe.Close(ctx))
}

const n = 1000 // elements

// write fills n elements with numbers of seed.
func write(t *testing.T, s *cuda.Stream, addr uintptr, seed int) {
	x := make([]int32, n)
	for i := range x {
		x[i] = int32(seed*1000 + i)
	}
	require.NoError(t, s.Upload(addr, cuda.Bytes(x)))
	require.NoError(t, s.Wait(t.Context()))
}

// read checks for them.
func read(t *testing.T, s *cuda.Stream, addr uintptr, seed int, what string) {
	x := make([]int32, n)
	require.NoError(t, s.Wait(t.Context()))
	require.NoError(t, s.Download(cuda.Bytes(x), addr))
	for i, v := range x {
		require.EqualValues(t, seed*1000+i, v, "%s: element %d", what, i)
	}
}

// refused makes the calls each of which would end this process.
func refused(t *testing.T, pe *nvshmem.PE, s *cuda.Stream, words, dst, src uintptr) {
	ctx := t.Context()
	for what, err := range map[string]error{
		"signal_wait_until": pe.SignalWait(s, words, nvshmem.Equal, 7),
		"team_sync":         pe.TeamSync(ctx, s, nvshmem.World),
		"barrier":           pe.TeamBarrier(ctx, s, nvshmem.World),
		"alltoall":          pe.AllToAll(ctx, s, nvshmem.World, dst, src, 64),
		"fcollect":          pe.FCollect(ctx, s, nvshmem.World, dst, src, 64),
		"broadcast":         pe.Broadcast(ctx, s, nvshmem.World, dst, src, 64, 0),
		"sum_reduce":        pe.Sum(ctx, s, nvshmem.World, dst, src, 16, true),
	} {
		require.ErrorIs(t, err, comm.Unavailable, what)
		require.ErrorContains(t, err, "share a GPU without MPS")
	}
}

// TestKernelsOverHeap runs weft's collectives over NVSHMEM's heap.
func TestKernelsOverHeap(t *testing.T) {
	for _, processes := range []int{2, 8} {
		t.Run(map[int]string{2: "Two", 8: "Eight"}[processes], func(t *testing.T) {
			pe, store := start(t, processes, 0, 100*time.Second)
			if pe == nil {
				return
			}
			w := overHeap(t, pe, store)
			t.Log("measured: " + proctest.World(t, w, 80))
			require.NoError(t, w.Close(t.Context()))
			require.NoError(t, pe.Close(context.Background()))
		})
	}
}

// overHeap opens the world of p2p's kernels over NVSHMEM's heap.
func overHeap(t *testing.T, pe *nvshmem.PE, store *rendezvous.Client) *comm.World {
	w, err := p2p.Open(t.Context(), p2p.Config{Devices: []comm.Device{{Kind: comm.CUDA}}, FirstRank: pe.Rank(), Size: pe.Size(), Store: store,
		Memory: pe, Workspace: 128 << 20, Timeout: 20 * time.Second})
	require.NoError(t, err)
	return w
}

// TestHeapKilled kills one of three processes: the others hear of it, and close without it.
func TestHeapKilled(t *testing.T) {
	pe, store := start(t, 3, 1, 60*time.Second)
	if pe == nil {
		return
	}
	w := overHeap(t, pe, store)
	c := w.Local()[0]
	require.NoError(t, c.Barrier(comm.Stream{}))
	require.NoError(t, c.Wait(t.Context(), comm.Stream{}))
	if pe.Rank() == 1 {
		proctest.Die()
	}
	begin := time.Now()
	err := w.Run(t.Context(), func(ctx context.Context, c *comm.Comm) error {
		return errors.Join(c.Barrier(comm.Stream{}), c.Wait(ctx, comm.Stream{}))
	})
	t.Logf("measured: after %v: %v", time.Since(begin).Round(time.Millisecond), err)
	require.Error(t, err)
	require.ErrorContains(t, err, "rank 1")
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	_ = w.Close(ended) // it may say that the world is dead
	require.NoError(t, pe.Close(ended))
	require.Less(t, time.Since(begin), 10*time.Second)
}
