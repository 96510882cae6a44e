//go:build linux && cgo

package ipc_test

import (
	"context"
	"path/filepath"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/comm/rendezvous"
	"github.com/weftgo/weft/internal/proctest"
	"github.com/weftgo/weft/internal/standin"
	"github.com/weftgo/weft/symm"
	"github.com/weftgo/weft/symm/ipc"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake runs the test in processes whose driver is a stand-in with memory in files; the parent gets nil.
func fake(t *testing.T, processes int, env ...string) *rendezvous.Client {
	if !proctest.Child() {
		lib := filepath.Join(standin.Build(t, standin.CUDA), standin.CUDA.File)
		env = append(env, "WEFT_CUDA_LIB="+lib, "FAKE_SHARED="+t.TempDir(), "WEFT_REQUIRE_GPU=0")
	}
	store, _ := proctest.Run(t, proctest.Config{Processes: processes, Env: env})
	return store
}

func job(store *rendezvous.Client, here int) symm.Job {
	j := symm.Job{Name: "job", Store: store, First: store.Job().Rank * here, Size: store.Job().Size * here}
	for range here {
		j.Devices = append(j.Devices, comm.Device{Kind: comm.CUDA})
	}
	return j
}

func at(addr uintptr) *uint64 { return (*uint64)(*(*unsafe.Pointer)(unsafe.Pointer(&addr))) }

// both runs a test with handles and with descriptors.
func both(t *testing.T, test func(t *testing.T, m symm.Memory)) {
	t.Run("Handles", func(t *testing.T) { test(t, ipc.Memory{}) })
	t.Run("Descriptors", func(t *testing.T) { test(t, ipc.Descriptors{}) })
}

// TestHeap lets every rank write into every block, through its own addresses and through those that others gave.
func TestHeap(t *testing.T) { both(t, heap) }

func heap(t *testing.T, m symm.Memory) {
	store := fake(t, 3)
	if store == nil {
		return
	}
	j := job(store, 2)
	h, err := m.Heap(t.Context(), j, 3<<20)
	require.NoError(t, err)
	require.Equal(t, 4<<20, h.Bytes, "whole blocks of the driver")
	for i := range 2 {
		for rank := range 6 {
			require.Equal(t, j.Here(rank), h.Shift(i, rank) == 0)
			addr := h.Own[rank] + uintptr(h.Bytes) - 64 + uintptr(8*(j.First+i)) // as rank says it
			*at(addr + h.Shift(i, rank)) = uint64(100*(j.First+i) + rank)
		}
	}
	_, err = j.Gather(t.Context(), "written", make([][]byte, 2))
	require.NoError(t, err)
	for i := range 2 {
		for rank := range 6 {
			require.EqualValues(t, 100*rank+j.First+i, *at(h.Base[i][j.First+i] + uintptr(h.Bytes) - 64 + uintptr(8*rank)))
		}
	}
	require.NoError(t, h.Close(t.Context()))
}

// TestDisagree asks for other sizes.
func TestDisagree(t *testing.T) { both(t, disagree) }

func disagree(t *testing.T, m symm.Memory) {
	store := fake(t, 2)
	if store == nil {
		return
	}
	_, err := m.Heap(t.Context(), job(store, 1), (2+2*store.Job().Rank)<<20)
	require.ErrorIs(t, err, comm.Invalid)
	require.ErrorContains(t, err, "bytes, rank")
}

// TestOneFails lets one process fail before it has anything to offer: all get an error, and its reason.
func TestOneFails(t *testing.T) { both(t, oneFails) }

func oneFails(t *testing.T, m symm.Memory) {
	store := fake(t, 2)
	if store == nil {
		return
	}
	j := job(store, 1)
	if j.First == 1 {
		j.Devices[0].Index = 7
	}
	_, err := m.Heap(t.Context(), j, 2<<20)
	require.ErrorContains(t, err, "the driver shows 2 devices")
	if j.First == 0 {
		require.ErrorIs(t, err, comm.Remote)
		require.ErrorContains(t, err, "rank 1 (process ")
	}
}

// TestWrongMemory lets the driver map other memory than the handle's.
func TestWrongMemory(t *testing.T) {
	store := fake(t, 2, "FAKE_WRONG=1")
	if store == nil {
		return
	}
	_, err := ipc.Memory{}.Heap(t.Context(), job(store, 1), 2<<20)
	require.ErrorContains(t, err, "maps other memory: stamp 0x0, want 0x")
}

// TestCloseAlone closes while the other process never does.
func TestCloseAlone(t *testing.T) { both(t, closeAlone) }

func closeAlone(t *testing.T, m symm.Memory) {
	store := fake(t, 2)
	if store == nil {
		return
	}
	h, err := m.Heap(t.Context(), job(store, 1), 2<<20)
	require.NoError(t, err)
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if store.Job().Rank == 1 {
		_, err := store.Get(t.Context(), "over")
		require.NoError(t, err)
		require.NoError(t, h.Close(ended))
		return
	}
	start := time.Now()
	limit, stop := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer stop()
	require.ErrorIs(t, h.Close(limit), comm.Timeout, "it waited as long as it should, and freed")
	require.Less(t, time.Since(start), 2*time.Second)
	require.NoError(t, store.Set(t.Context(), "over", nil))
}
