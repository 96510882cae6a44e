//go:build linux && cgo

package p2p

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/comm/rendezvous"
	"github.com/weftgo/weft/internal/kernels"
	"github.com/weftgo/weft/internal/proctest"
	"github.com/weftgo/weft/internal/standin"
	"github.com/weftgo/weft/symm"
)

// fakes builds the stand-ins for the driver, whose memory is files, and for the compiler, and returns the variables that make a
// process use them. Kernels do nothing there, so ranks never wait on the device; all that the host does is real.
func fakes(t *testing.T) []string {
	if proctest.Child() {
		return nil
	}
	dir := standin.Build(t, standin.CUDA, standin.Library{File: "libnvrtc.so.13", Source: "comm/p2p/testdata/libnvrtc.c"})
	own := t.TempDir()
	return []string{"WEFT_CUDA_LIB=" + filepath.Join(dir, "libcuda.so.1"), "WEFT_NVRTC_LIB=" + filepath.Join(dir, "libnvrtc.so.13"),
		"FAKE_SHARED=" + own, "WEFT_CACHE_DIR=" + own, "WEFT_REQUIRE_GPU=0"}
}

func spanConfig(store *rendezvous.Client, here int) Config {
	return Config{Devices: oneGPU(here), FirstRank: store.Job().Rank * here, Size: store.Job().Size * here, Store: store,
		Workspace: 32 << 20, Timeout: 10 * time.Second}
}

// at reads and writes memory of the fake driver, which is the host's.
func at[T any](addr uintptr) *T { return (*T)(*(*unsafe.Pointer)(unsafe.Pointer(&addr))) }

// TestSpanTables opens a world of three processes of two ranks, and of groups that cross them, and writes a word into every
// member's tables through every other's.
func TestSpanTables(t *testing.T) {
	store, r := proctest.Run(t, proctest.Config{Processes: 3, Env: fakes(t)})
	if r != nil {
		return
	}
	w, err := Open(t.Context(), spanConfig(store, 2))
	require.NoError(t, err)
	require.Equal(t, 6, w.Size())
	require.NoError(t, each(w, func(c *comm.Comm) error {
		tables(t, store, c, "world")
		sub, err := c.Split(t.Context(), c.Rank()%2, -c.Rank())
		require.NoError(t, err)
		require.Equal(t, 3, sub.Size())
		require.Equal(t, 2-c.Rank()/2, sub.Rank(), "by key, the highest rank first")
		tables(t, store, sub, "parity")
		color := -1
		if c.Rank() > 0 {
			color = c.Rank() / 4 // 1 to 3 in two processes, 4 and 5 in one
		}
		sub, err = c.Split(t.Context(), color, 0)
		require.NoError(t, err)
		if color < 0 {
			require.Nil(t, sub)
			return nil
		}
		g := sub.Conn().(*conn).g
		require.Equal(t, color == 0, g.foreign())
		require.Equal(t, color == 1, g.shared&kernels.SameGPU != 0)
		tables(t, store, sub, "uneven")
		return nil
	}))
	regions(t, w)
	require.NoError(t, w.Close(t.Context()))
}

// each runs fn on this process's ranks at once.
func each(w *comm.World, fn func(c *comm.Comm) error) error {
	var wg sync.WaitGroup
	errs := make([]error, len(w.Local()))
	for i, c := range w.Local() {
		wg.Go(func() { errs[i] = fn(c) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// tables checks where a member's Ctl leads: each member writes its mark into all others' Closed words.
func tables(t *testing.T, store *rendezvous.Client, sub *comm.Comm, name string) {
	c := sub.Conn().(*conn)
	ctl := at[kernels.Ctl](c.ctl)
	require.EqualValues(t, sub.Rank(), ctl.Rank)
	require.EqualValues(t, sub.Size(), ctl.Size)
	require.EqualValues(t, 6, ctl.WorldSize)
	require.EqualValues(t, uintptr(unsafe.Pointer(c.r.records)), ctl.Records, "where this process looks for its records")
	require.EqualValues(t, uintptr(unsafe.Pointer(c.g.w.abort)), ctl.HostAbort)
	for i := range sub.Size() {
		at[kernels.Ctl](uintptr(ctl.Peers[i])).Answers[sub.Rank()] = uint64(1000 + sub.Rank())
		*at[uint64](uintptr(ctl.Small[i] + 8*uint64(sub.Rank()))) = uint64(2000 + sub.Rank())
		require.Equal(t, c.g.members[i].away, ctl.Shift[i] != 0, "member %d", i)
	}
	for i := range ctl.WorldSize {
		require.NotZero(t, ctl.World[i])
	}
	meetAll(t, store, c, name)
	for i := range sub.Size() {
		require.EqualValues(t, 1000+i, ctl.Answers[i], "what member %d wrote", i)
		require.EqualValues(t, 2000+i, *at[uint64](c.small + uintptr(8*i)))
	}
}

// meetAll is a barrier of a group over the store: the fake driver's kernels are none.
func meetAll(t *testing.T, store *rendezvous.Client, c *conn, name string) {
	_, err := rendezvous.Exchange(t.Context(), store, "test/"+name+"/"+c.g.key, c.rank, len(c.g.members), nil)
	require.NoError(t, err)
}

// regions allocates, writes and releases until the workspace would be used up twice.
func regions(t *testing.T, w *comm.World) {
	store := w.Local()[0].Conn().(*conn).g.w.cfg.Store.(*rendezvous.Client)
	require.NoError(t, each(w, func(c *comm.Comm) error {
		for range 10 {
			r, err := symm.Alloc(t.Context(), c, 6<<20)
			require.NoError(t, err)
			for peer := range c.Size() {
				*at[uint32](r.Addr(peer) + uintptr(4*c.Rank())) = uint32(100*c.Rank() + peer)
			}
			meetAll(t, store, c.Conn().(*conn), "written")
			for peer := range c.Size() {
				require.EqualValues(t, 100*peer+c.Rank(), *at[uint32](r.Addr(c.Rank()) + uintptr(4*peer)))
			}
			meetAll(t, store, c.Conn().(*conn), "read")
			require.NoError(t, r.Close(t.Context()))
			meetAll(t, store, c.Conn().(*conn), "released")
		}
		_, err := symm.Alloc(t.Context(), c, 33<<20)
		require.ErrorIs(t, err, comm.Unavailable)
		require.ErrorContains(t, err, "raise Config.Workspace")
		_, err = symm.Alloc(t.Context(), c, 4096*(1+c.Rank()/3))
		require.ErrorIs(t, err, comm.Invalid)
		require.ErrorContains(t, err, "ranks disagree: rank 0 wants 4096 bytes, rank 3 wants 8192")
		r, err := symm.Alloc(t.Context(), c, 20<<20)
		require.NoError(t, err, "what failed gave its memory back")
		return r.Close(t.Context())
	}))
}

// TestSpanDisagrees opens a world with other numbers in one process.
func TestSpanDisagrees(t *testing.T) {
	store, r := proctest.Run(t, proctest.Config{Processes: 2, Env: fakes(t)})
	if r != nil {
		return
	}
	for _, x := range []struct {
		what   string
		change func(c *Config)
	}{
		{"workspace", func(c *Config) { c.Workspace += 1 << 20 }},
		{"timeout", func(c *Config) { c.Timeout++ }},
	} {
		cfg := spanConfig(store, 1)
		if cfg.FirstRank == 1 {
			x.change(&cfg)
		}
		_, err := Open(t.Context(), cfg)
		require.ErrorIs(t, err, comm.Invalid)
		require.ErrorContains(t, err, "ranks disagree on the "+x.what)
	}
}

// TestSpanAgain opens a world that process 1 misses, and then, under another name, one for which it comes.
func TestSpanAgain(t *testing.T) {
	store, r := proctest.Run(t, proctest.Config{Processes: 2, Env: fakes(t)})
	if r != nil {
		return
	}
	cfg := spanConfig(store, 1)
	if cfg.FirstRank == 0 {
		late := cfg
		late.Timeout = 200 * time.Millisecond
		_, err := Open(t.Context(), late)
		require.ErrorIs(t, err, comm.Timeout)
		require.NoError(t, store.Set(t.Context(), "missed", nil))
	}
	_, err := store.Get(t.Context(), "missed")
	require.NoError(t, err)
	cfg.Name = "again"
	w, err := Open(t.Context(), cfg)
	require.NoError(t, err)
	require.NoError(t, w.Close(t.Context()))
}

// TestSpanAbort aborts the world in one process; TestSpanKilled ends one. The others hear of it, and close at once.
func TestSpanAbort(t *testing.T) {
	ends(t, 0, func(w *comm.World) { w.Abort(comm.Errorf("the test", 1, comm.Invalid, "enough")) }, "enough (in another process)")
}

func TestSpanKilled(t *testing.T) {
	ends(t, 1, func(*comm.World) { proctest.Die() }, "rank 1")
}

func ends(t *testing.T, dies int, end func(w *comm.World), want string) {
	store, r := proctest.Run(t, proctest.Config{Processes: 3, Dies: dies, Env: fakes(t)})
	if r != nil {
		require.Len(t, r.Failed, dies)
		return
	}
	w, err := Open(t.Context(), spanConfig(store, 1))
	require.NoError(t, err)
	c := w.Local()[0].Conn().(*conn)
	meetAll(t, store, c, "open")
	start := time.Now()
	if c.rank == 1 {
		end(w)
	}
	select {
	case <-w.Done():
	case <-time.After(5 * time.Second):
		t.Fatal("nobody told this process")
	}
	if c.rank != 1 {
		require.ErrorContains(t, w.Err(), want)
	}
	err = w.Local()[0].Barrier(comm.Stream{})
	require.ErrorIs(t, err, comm.Aborted)
	_ = w.Close(context.Background())
	require.Less(t, time.Since(start), 8*time.Second)
}
