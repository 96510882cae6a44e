package nccl_test

import (
	"errors"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/cuda"
	"github.com/weftgo/weft/internal/gputest"
	"github.com/weftgo/weft/nccl"
)

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

// mustHave accepts a function that the library lacks, with the typed error, and fails for any other error.
func mustHave(t *testing.T, err error) bool {
	t.Helper()
	var missing *nccl.MissingError
	if errors.As(err, &missing) {
		require.ErrorIs(t, err, comm.Unavailable)
		t.Log(err)
		return false
	}
	require.NoError(t, err)
	return true
}

func upload(t testing.TB, d *cuda.Device, s *cuda.Stream, x []float32) uintptr {
	t.Helper()
	addr, err := d.Alloc(4 * len(x))
	require.NoError(t, err)
	require.NoError(t, s.Upload(addr, cuda.Bytes(x)))
	return addr
}

func download(t testing.TB, s *cuda.Stream, addr uintptr, n int) []float32 {
	t.Helper()
	x := make([]float32, n)
	require.NoError(t, s.Download(cuda.Bytes(x), addr))
	return x
}

// One rank of one process calls every function that the library has. Each collective is a copy.
func TestGPUAPI(t *testing.T) {
	d, s := gpu(t)
	lib, err := nccl.Loaded()
	require.NoError(t, err)
	t.Logf("%s, version %s", lib.Path, lib.Version)
	id, err := nccl.UniqueID()
	require.NoError(t, err)
	c, err := nccl.NewCommunicator(t.Context(), d, 1, 0, id, nccl.Options{Name: "weft-test", MinCTAs: 1, MaxCTAs: 4})
	require.NoError(t, err)
	require.NotZero(t, c.Handle())
	for want, get := range map[int]func() (int, error){0: c.Rank, 1: c.Size} {
		got, err := get()
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	ordinal, err := c.Ordinal()
	require.NoError(t, err)
	require.Equal(t, 0, ordinal)
	require.NoError(t, c.AsyncError())
	t.Run("collectives", func(t *testing.T) { everyCollective(t, d, s, c) })
	t.Run("reductions", func(t *testing.T) { reductions(t, d, s, c) })
	t.Run("memory", func(t *testing.T) { memory(t, d, c) })
	t.Run("derived", func(t *testing.T) { derived(t, d, s, c) })
	t.Run("rest", func(t *testing.T) { rest(t, s, c) })
	require.NoError(t, c.Finalize(t.Context()))
	require.NoError(t, c.Destroy())
	require.NoError(t, c.Destroy(), "again")
	require.NoError(t, c.Abort(), "after the end")
	require.ErrorIs(t, c.Enqueue(t.Context(), s, nccl.Call{}), nccl.InvalidArgument)
}

func everyCollective(t *testing.T, d *cuda.Device, s *cuda.Stream, c *nccl.Communicator) {
	x := []float32{1, 2, 3, 4}
	src := upload(t, d, s, x)
	for k := nccl.AllReduce; k <= nccl.Scatter; k++ {
		if k == nccl.Send || k == nccl.Recv {
			continue
		}
		dst := upload(t, d, s, []float32{9, 9, 9, 9})
		call := nccl.Call{Kind: k, Src: uint64(src), Dst: uint64(dst), Count: 4, Type: nccl.Float32}
		want := x
		if k == nccl.Bcast {
			want = []float32{9, 9, 9, 9}
		}
		if mustHave(t, c.Enqueue(t.Context(), s, call)) {
			require.NoError(t, s.Wait(t.Context()))
			require.Equal(t, want, download(t, s, dst, 4), "kind %d", k)
		}
		require.NoError(t, d.Free(dst))
	}
	dst := upload(t, d, s, make([]float32, 4))
	require.NoError(t, c.Enqueue(t.Context(), s, // a group, to itself
		nccl.Call{Kind: nccl.Send, Src: uint64(src), Count: 4, Type: nccl.Float32},
		nccl.Call{Kind: nccl.Recv, Dst: uint64(dst), Count: 4, Type: nccl.Float32}))
	require.NoError(t, s.Wait(t.Context()))
	require.Equal(t, x, download(t, s, dst, 4))
	// A call that the library refuses leaves a non-blocking communicator broken, a blocking one as it was.
	id, err := nccl.UniqueID()
	require.NoError(t, err)
	victim, err := nccl.NewBlocking(d, 1, 0, id)
	require.NoError(t, err)
	err = victim.Enqueue(t.Context(), s, nccl.Call{Kind: nccl.Broadcast, Src: uint64(src), Dst: uint64(dst), Count: 4, Type: nccl.Float32, Peer: 7})
	require.ErrorIs(t, err, comm.Invalid)
	require.ErrorContains(t, err, "7", "the library's own words")
	require.NoError(t, victim.AsyncError())
	require.NoError(t, errors.Join(victim.Destroy(), d.Free(src), d.Free(dst)))
}

func reductions(t *testing.T, d *cuda.Device, s *cuda.Stream, c *nccl.Communicator) {
	src, dst := upload(t, d, s, []float32{1, 2}), upload(t, d, s, []float32{0, 0})
	three := math.Float32bits(3)
	r, err := c.PreMulSum(nccl.Float32, []byte{byte(three), byte(three >> 8), byte(three >> 16), byte(three >> 24)})
	require.NoError(t, err)
	require.NoError(t, c.Enqueue(t.Context(), s, nccl.Call{Kind: nccl.AllReduce, Src: uint64(src), Dst: uint64(dst), Count: 2, Type: nccl.Float32, Reduce: r}))
	require.NoError(t, s.Wait(t.Context()))
	require.Equal(t, []float32{3, 6}, download(t, s, dst, 2))
	require.NoError(t, c.DropReduction(r))
	scalar := upload(t, d, s, []float32{5})
	r, err = c.PreMulSumAt(nccl.Float32, scalar)
	require.NoError(t, err)
	require.NoError(t, c.Enqueue(t.Context(), s, nccl.Call{Kind: nccl.AllReduce, Src: uint64(src), Dst: uint64(dst), Count: 2, Type: nccl.Float32, Reduce: r}))
	require.NoError(t, s.Wait(t.Context()))
	require.Equal(t, []float32{5, 10}, download(t, s, dst, 2))
	require.NoError(t, c.DropReduction(r))
	require.NoError(t, errors.Join(d.Free(src), d.Free(dst), d.Free(scalar)))
}

func memory(t *testing.T, d *cuda.Device, c *nccl.Communicator) {
	const bytes = 4 << 20
	addr, err := nccl.MemAlloc(d, bytes)
	if !mustHave(t, err) {
		return
	}
	require.NotZero(t, addr)
	reg, err := c.Register(addr, bytes)
	require.NoError(t, err)
	require.NoError(t, reg.Close())
	w, err := c.RegisterWindow(t.Context(), addr, bytes, nccl.WindowSymmetric)
	if mustHave(t, err) {
		t.Logf("window %#x", w.Handle())
		at, err := w.Addr()
		if mustHave(t, err) && w.Handle() != 0 {
			require.Equal(t, addr, at)
		}
		for _, pointer := range []func(int, int) (uintptr, error){w.PeerPointer, w.LSAPointer} {
			_, err = pointer(0, 0)
			mustHave(t, err)
		}
		require.NoError(t, w.Close(t.Context()))
		require.NoError(t, w.Close(t.Context()), "again")
	}
	require.NoError(t, nccl.MemFree(d, addr))
}

func derived(t *testing.T, d *cuda.Device, s *cuda.Stream, c *nccl.Communicator) {
	none, err := c.Split(t.Context(), -1, 0, nil)
	require.NoError(t, err)
	require.Nil(t, none)
	for name, make := range map[string]func() (*nccl.Communicator, error){
		"split":   func() (*nccl.Communicator, error) { return c.Split(t.Context(), 3, 7, nil) },
		"options": func() (*nccl.Communicator, error) { return c.Split(t.Context(), 3, 7, &nccl.Options{Name: "child"}) },
		"scalable": func() (*nccl.Communicator, error) {
			id, err := nccl.UniqueID()
			require.NoError(t, err)
			return nccl.NewScalable(t.Context(), d, 1, 0, []nccl.ID{id}, nccl.Options{})
		},
		"blocking": func() (*nccl.Communicator, error) {
			id, err := nccl.UniqueID()
			require.NoError(t, err)
			return nccl.NewBlocking(d, 1, 0, id)
		},
		"all": func() (*nccl.Communicator, error) {
			list, err := nccl.NewAll([]*cuda.Device{d})
			if err != nil {
				return nil, err
			}
			return list[0], nil
		},
		"revoked": func() (*nccl.Communicator, error) {
			x, err := c.Split(t.Context(), 0, 0, nil)
			require.NoError(t, err)
			return x, x.Revoke(t.Context())
		},
	} {
		x, err := make()
		if !mustHave(t, err) {
			continue
		}
		n, err := x.Size()
		require.NoError(t, err, name)
		require.Equal(t, 1, n)
		if name != "revoked" {
			src, dst := upload(t, d, s, []float32{8}), upload(t, d, s, []float32{0})
			require.NoError(t, x.Enqueue(t.Context(), s, nccl.Call{Kind: nccl.AllGather, Src: uint64(src), Dst: uint64(dst), Count: 1, Type: nccl.Float32}), name)
			require.NoError(t, s.Wait(t.Context()))
			require.Equal(t, []float32{8}, download(t, s, dst, 1), name)
			require.NoError(t, errors.Join(d.Free(src), d.Free(dst)))
		}
		require.NoError(t, x.Destroy(), name)
	}
}

// rest is what 2.28.9 lacks, and the host side of the device API.
func rest(t *testing.T, s *cuda.Stream, c *nccl.Communicator) {
	micros, err := c.Simulate(s, nccl.Call{Kind: nccl.AllReduce, Src: 4096, Dst: 4096, Count: 0, Type: nccl.Float32})
	if mustHave(t, err) {
		t.Logf("simulated: %v us", micros)
	}
	for name, get := range map[string]func() (nccl.Team, error){"world": c.WorldTeam, "lsa": c.LSATeam, "rail": c.RailTeam} {
		team, err := get()
		if mustHave(t, err) {
			require.Equal(t, nccl.Team{NumRanks: 1, Rank: 0, Stride: 1}, team, name)
		}
	}
	if team, err := c.WorldTeam(); mustHave(t, err) {
		for _, rank := range []func(nccl.Team, int) (int, error){c.WorldRank, c.LSARank} {
			r, err := rank(team, 0)
			require.NoError(t, err)
			require.Zero(t, r)
		}
		slots, err := nccl.LLA2ASlots(64, 16)
		require.NoError(t, err)
		require.Positive(t, slots)
	}
	if _, err := c.MemStats(nccl.MemTotal); mustHave(t, err) {
		require.NoError(t, errors.Join(c.Suspend(), c.Resume()))
	}
	_, err = nccl.Params()
	mustHave(t, err)
	_, err = c.UniqueID()
	mustHave(t, err)
}

// A captured operation replays. With several ranks that needs a blocking communicator: others launch from a thread of NCCL's.
func TestGPUGraph(t *testing.T) {
	d, s := gpu(t)
	for _, blocking := range []bool{true, false} {
		id, err := nccl.UniqueID()
		require.NoError(t, err)
		c, err := nccl.NewCommunicator(t.Context(), d, 1, 0, id, nccl.Options{Blocking: blocking})
		require.NoError(t, err)
		src, dst := upload(t, d, s, []float32{1, 2}), upload(t, d, s, []float32{0, 0})
		call := nccl.Call{Kind: nccl.AllReduce, Src: uint64(src), Dst: uint64(dst), Count: 2, Type: nccl.Float32}
		require.NoError(t, c.Enqueue(t.Context(), s, call))
		require.NoError(t, s.Wait(t.Context()))
		g, err := s.Capture(func() error { return c.Enqueue(t.Context(), s, call) })
		t.Logf("blocking %v: capture: %v", blocking, err)
		if blocking {
			require.NoError(t, err)
		}
		if err == nil {
			exec, err := g.Instantiate()
			require.NoError(t, err)
			for i := range 3 {
				require.NoError(t, s.Upload(src, cuda.Bytes([]float32{float32(i), 5})))
				require.NoError(t, exec.Launch(s))
				require.NoError(t, s.Wait(t.Context()))
				require.Equal(t, []float32{float32(i), 5}, download(t, s, dst, 2))
			}
			require.NoError(t, errors.Join(exec.Close(), g.Close()))
		}
		require.NoError(t, errors.Join(d.Free(src), d.Free(dst), c.Abort()))
	}
}
