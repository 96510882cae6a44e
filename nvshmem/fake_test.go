//go:build linux && cgo

package nvshmem_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/comm/rendezvous"
	"github.com/weftgo/weft/cuda"
	"github.com/weftgo/weft/internal/proctest"
	"github.com/weftgo/weft/internal/standin"
	"github.com/weftgo/weft/nvshmem"
	"github.com/weftgo/weft/symm"
)

// fakes builds the stand-ins for NVSHMEM and the driver and returns the variables that make a process use them.
func fakes(t *testing.T, flags ...string) []string {
	if proctest.Child() {
		return nil
	}
	dir := standin.Build(t, standin.CUDA, standin.Library{File: "libnvshmem_host.so.3", Source: "nvshmem/testdata/libnvshmem_host.c", Flags: flags})
	return []string{"WEFT_CUDA_LIB=" + filepath.Join(dir, "libcuda.so.1"), "WEFT_NVSHMEM_LIB=" + dir, "FAKE_SHARED=" + t.TempDir(), "WEFT_REQUIRE_GPU=0"}
}

// fake runs the test in processes with the stand-ins; the parent gets nil.
func fake(t *testing.T, processes int, env []string, flags ...string) *rendezvous.Client {
	store, _ := proctest.Run(t, proctest.Config{Processes: processes, Env: append(fakes(t, flags...), env...)})
	return store
}

func config(store *rendezvous.Client) nvshmem.Config {
	return nvshmem.Config{Rank: store.Job().Rank, Size: store.Job().Size, Store: store, Timeout: 5 * time.Second}
}

// TestFakeUnavailable opens libraries that will not do.
func TestFakeUnavailable(t *testing.T) {
	for _, x := range []struct {
		name, want string
		env, flags []string
	}{
		{"Old", "is version 2.11.0, weft needs 3.0", []string{"FAKE_NVSHMEM_VERSION=2.11.0"}, nil},
		{"New", "is version 4.0.1, whose structs weft does not know", []string{"FAKE_NVSHMEM_VERSION=4.0.1"}, nil},
		{"Lacks", "too old or another library: it lacks nvshmemx_signal_wait_until_on_stream", nil, []string{"-DOLD"}},
		{"Absent", "libnvshmem_host not found", []string{"WEFT_NVSHMEM_LIB=/nonexistent/libnvshmem_host.so.3"}, nil},
		{"Fails", "did not start: code 0, status 0", []string{"FAKE_NVSHMEM_FAILS=1"}, nil},
	} {
		t.Run(x.name, func(t *testing.T) {
			store := fake(t, 1, x.env, x.flags...)
			if store == nil {
				return
			}
			_, err := nvshmem.Open(t.Context(), config(store))
			require.ErrorIs(t, err, comm.Unavailable)
			require.ErrorContains(t, err, x.want)
		})
	}
}

// TestFakeTwice maps a second copy of the library before the first is opened.
func TestFakeTwice(t *testing.T) {
	env := fakes(t)
	if !proctest.Child() {
		copied := filepath.Join(t.TempDir(), "libnvshmem_host.so.3")
		b, err := os.ReadFile(filepath.Join(env[1][len("WEFT_NVSHMEM_LIB="):], "libnvshmem_host.so.3"))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(copied, b, 0o700))
		env = append(env, "LD_PRELOAD="+copied)
	}
	store, _ := proctest.Run(t, proctest.Config{Processes: 1, Env: env})
	if store == nil {
		return
	}
	_, err := nvshmem.Open(t.Context(), config(store))
	require.ErrorIs(t, err, comm.Unavailable)
	require.ErrorContains(t, err, "it is in this process 2 times")
}

func at[T any](addr uintptr) *T { return (*T)(*(*unsafe.Pointer)(unsafe.Pointer(&addr))) }

// TestFakeOperations moves data and signals between three processes.
func TestFakeOperations(t *testing.T) {
	store := fake(t, 3, nil)
	if store == nil {
		return
	}
	ctx := t.Context()
	pe, err := nvshmem.Open(ctx, config(store))
	require.NoError(t, err)
	require.False(t, pe.Limited())
	require.Equal(t, "3.4.5", pe.Version().String())
	_, err = nvshmem.Open(ctx, config(store))
	require.ErrorContains(t, err, "can be only once")
	s, err := pe.Device().NewStream(0)
	require.NoError(t, err)
	a, err := pe.Malloc(ctx, 64)
	require.NoError(t, err)
	b, err := pe.Malloc(ctx, 64)
	require.NoError(t, err)
	_, err = pe.Malloc(ctx, 2<<30)
	require.ErrorContains(t, err, "raise Config.HeapBytes")
	right, left := (pe.Rank()+1)%3, (pe.Rank()+2)%3
	*at[uint64](a) = uint64(10 + pe.Rank())
	require.NoError(t, pe.Put(s, b, a, 8, right))
	require.NoError(t, pe.BarrierAllOnStream(ctx, s))
	require.EqualValues(t, 10+left, *at[uint64](b))
	require.NoError(t, pe.SyncAll(ctx))
	require.NoError(t, pe.PutSignal(s, b+8, a, 8, b+16, 5, nvshmem.SignalSet, left))
	require.NoError(t, pe.Signal(s, b+24, 2, nvshmem.SignalAdd, left))
	require.NoError(t, pe.Signal(s, b+24, 3, nvshmem.SignalAdd, left))
	require.NoError(t, pe.Quiet(s))
	require.NoError(t, pe.BarrierAll(ctx))
	require.EqualValues(t, 10+right, *at[uint64](b + 8))
	require.EqualValues(t, 5, *at[uint64](b + 16))
	require.EqualValues(t, 5, *at[uint64](b + 24))
	require.NoError(t, pe.Get(s, b, a, 8, left))
	require.EqualValues(t, 10+left, *at[uint64](b))
	require.NoError(t, pe.SyncAllOnStream(ctx, s))
	require.NoError(t, pe.SignalWait(s, b, nvshmem.GreaterEqual, 1), "allowed here")
	require.NoError(t, pe.TeamSync(ctx, s, nvshmem.World))
	require.ErrorContains(t, pe.FCollect(ctx, s, nvshmem.World, a, b, 8), "code 5")
	require.ErrorContains(t, pe.Broadcast(ctx, s, nvshmem.World, a, b, 8, 0), "NVSHMEM 3.4.5 has no nvshmemx_broadcastmem_on_stream")
	for _, err := range []error{pe.Put(s, b, a, 8, 3), pe.Get(s, b, a, 8, -1), pe.Signal(s, b, 1, 3, 0), pe.SignalWait(s, b, 6, 0)} {
		require.ErrorIs(t, err, comm.Invalid)
	}
	require.NoError(t, pe.Free(ctx, a))
	require.NoError(t, pe.Close(ctx))
	require.ErrorIs(t, pe.BarrierAll(ctx), comm.Invalid)
	require.NoError(t, pe.Close(ctx), "does nothing")
}

// TestFakeCloseAlone closes a PE whose peer does not; a second time does not wait again.
func TestFakeCloseAlone(t *testing.T) {
	store := fake(t, 2, nil)
	if store == nil {
		return
	}
	pe, err := nvshmem.Open(t.Context(), config(store))
	require.NoError(t, err)
	if pe.Rank() == 1 {
		_, err := store.Get(t.Context(), "over")
		require.NoError(t, err)
		return
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, pe.Close(ctx), comm.Timeout)
	start := time.Now()
	require.NoError(t, pe.Close(t.Context()))
	require.Less(t, time.Since(start), 3*time.Second, "less than Config.Timeout")
	require.NoError(t, store.Set(t.Context(), "over", nil))
}

// TestFakeLimited makes every call that would end the process where PEs share a GPU: the stand-in ends it too.
func TestFakeLimited(t *testing.T) {
	store := fake(t, 2, []string{"FAKE_NVSHMEM_STATUS=3"})
	if store == nil {
		return
	}
	pe, err := nvshmem.Open(t.Context(), config(store))
	require.NoError(t, err)
	require.True(t, pe.Limited())
	s, err := pe.Device().NewStream(0)
	require.NoError(t, err)
	refused(t, pe, s, 8, 8, 8)
	require.NoError(t, pe.BarrierAllOnStream(t.Context(), s), "allowed")
	require.NoError(t, pe.Close(t.Context()))
}

// TestFakeLate lets PE 1 miss a barrier.
func TestFakeLate(t *testing.T) {
	store := fake(t, 2, nil)
	if store == nil {
		return
	}
	pe, err := nvshmem.Open(t.Context(), config(store))
	require.NoError(t, err)
	if pe.Rank() == 1 {
		_, err := store.Get(t.Context(), "over")
		require.NoError(t, err)
		require.NoError(t, pe.BarrierAll(t.Context()), "for the thread of PE 0")
		return
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	start := time.Now()
	require.ErrorIs(t, pe.BarrierAll(ctx), comm.Timeout)
	err = pe.SyncAll(t.Context())
	require.ErrorIs(t, err, comm.Timeout)
	require.ErrorContains(t, err, "cannot be used any more")
	require.NoError(t, pe.Close(t.Context()), "waits for nobody")
	require.Less(t, time.Since(start), 3*time.Second)
	require.NoError(t, store.Set(t.Context(), "over", nil))
	time.Sleep(200 * time.Millisecond) // the thread comes back, for goleak
}

// TestFakeAbsent lets PE 1 stay away: before the unique id, and after it, when PE 0 is in the library already.
func TestFakeAbsent(t *testing.T) {
	for _, early := range []bool{true, false} {
		t.Run(map[bool]string{true: "Early", false: "Late"}[early], func(t *testing.T) {
			store := fake(t, 2, nil)
			if store == nil {
				return
			}
			ctx := t.Context()
			if store.Job().Rank == 1 {
				require.NoError(t, store.Set(ctx, "here", nil))
				if !early {
					_, err := rendezvous.Exchange(ctx, store, "nvshmem/id", 1, 2, nil)
					require.NoError(t, err)
				}
				_, err := store.Get(ctx, "over")
				require.NoError(t, err)
				return
			}
			cfg := config(store)
			cfg.Timeout = time.Second // within which PE 1 must do what it does, but not start
			_, err := store.Get(ctx, "here")
			require.NoError(t, err)
			dev, err := cuda.Open(0)
			require.NoError(t, err)
			start := time.Now()
			_, err = nvshmem.Open(ctx, cfg)
			require.ErrorIs(t, err, comm.Timeout)
			require.Less(t, time.Since(start), 3*time.Second)
			require.NoError(t, dev.Close())
			again, againErr := cuda.Open(0)
			require.NoError(t, againErr)
			require.Equal(t, early, dev != again, "the device stays open while a thread is in the library")
			if early {
				require.ErrorContains(t, err, "nvshmem/id")
				require.Regexp(t, "waited for rank 1|no answer", err.Error(), "the latter from a store that is slower than the deadline")
			} else {
				require.ErrorContains(t, err, "initialise: other PEs did not come")
			}
			require.NoError(t, store.Set(ctx, "over", nil))
			if !early {
				os.Exit(pass(t)) // its thread stays in the library
			}
		})
	}
}

// pass ends a process whose leak is the point of its test.
func pass(t *testing.T) int {
	fmt.Println("--- PASS: " + t.Name())
	return 0
}

// TestFakeHeap writes into every rank's block through every other's addresses.
func TestFakeHeap(t *testing.T) {
	store := fake(t, 3, nil)
	if store == nil {
		return
	}
	ctx := t.Context()
	pe, err := nvshmem.Open(ctx, config(store))
	require.NoError(t, err)
	job := symm.Job{Name: "test", Store: store, First: pe.Rank(), Size: 3, Devices: []comm.Device{{Kind: comm.CUDA}}}
	h, err := pe.Heap(ctx, job, 4096)
	require.NoError(t, err)
	for rank := range 3 {
		require.Equal(t, rank == pe.Rank(), h.Shift(0, rank) == 0)
		*at[uint64](h.Own[rank] + h.Shift(0, rank) + uintptr(8*pe.Rank())) = uint64(10*pe.Rank() + rank)
	}
	require.NoError(t, pe.BarrierAll(ctx))
	for rank := range 3 {
		require.EqualValues(t, 10*rank+pe.Rank(), *at[uint64](h.Own[pe.Rank()] + uintptr(8*rank)))
	}
	job.Size = 4
	_, err = pe.Heap(ctx, job, 4096)
	require.ErrorIs(t, err, comm.Invalid)
	require.ErrorContains(t, err, "of 4 on [cuda:0] here, NVSHMEM has PE")
	require.NoError(t, h.Close(ctx))
	require.NoError(t, pe.Close(ctx))
}

// TestFakeFar is a heap whose memory is out of reach, three times: what failed has given its memory back.
func TestFakeFar(t *testing.T) {
	store := fake(t, 2, []string{"FAKE_NVSHMEM_FAR=1"})
	if store == nil {
		return
	}
	pe, err := nvshmem.Open(t.Context(), config(store))
	require.NoError(t, err)
	for range 3 {
		_, err = pe.Heap(t.Context(), symm.Job{Name: "test", Store: store, First: pe.Rank(), Size: 2, Devices: []comm.Device{{Kind: comm.CUDA}}}, 400<<20)
		require.ErrorIs(t, err, comm.Unavailable)
		require.ErrorContains(t, err, "do not reach the memory of rank")
	}
	require.NoError(t, pe.Close(t.Context()))
}
