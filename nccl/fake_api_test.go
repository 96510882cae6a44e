//go:build linux && cgo

package nccl_test

import (
	"context"
	"errors"
	"os"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/cuda"
	"github.com/weftgo/weft/nccl"
	"github.com/weftgo/weft/nccl/nccltest"
)

// pair is a communicator of two ranks on two devices of the stand-in.
func pair(t *testing.T) (list []*nccl.Communicator, streams []*cuda.Stream) {
	t.Helper()
	id, err := nccl.UniqueID()
	require.NoError(t, err)
	var devices []*cuda.Device
	for i := range 2 {
		d, err := cuda.Open(i)
		require.NoError(t, err)
		s, err := d.NewStream(0)
		require.NoError(t, err)
		devices, streams = append(devices, d), append(streams, s)
	}
	list, err = nccl.NewGroup(t.Context(), devices, 2, []int{0, 1}, id, nccl.Options{})
	require.NoError(t, err)
	t.Cleanup(func() {
		for i, c := range list {
			require.NoError(t, errors.Join(c.Abort(), streams[i].Close(), devices[i].Close()))
		}
	})
	return list, streams
}

// words stands for C memory: it does not move, as a variable on a stack may.
var words [3]int32

// The newest library has every function, and gets the arguments where it expects them.
func TestFakeAPI(t *testing.T) {
	if inside, _ := nccltest.Run(t, nil); !inside {
		return
	}
	for _, row := range nccl.Symbols() {
		require.True(t, nccl.Has(row.Name), row.Name)
	}
	require.False(t, nccl.Has("ncclNoSuch"))
	l, err := nccl.Loaded()
	require.NoError(t, err)
	require.Equal(t, "2.30.7", l.Version)
	list, streams := pair(t)
	c, s := list[1], streams[1]
	said := func(err error) string {
		require.NoError(t, err)
		return nccl.LastError()
	}
	require.Equal(t, "suspend 1 flags 1", said(c.Suspend()))
	require.Equal(t, "resume 1", said(c.Resume()))
	n, err := c.MemStats(nccl.MemTotal)
	require.NoError(t, err)
	require.EqualValues(t, 1003, n)
	addr, err := nccl.MemAlloc(c.CUDADevice(), 8192)
	require.NoError(t, err)
	reg, err := c.Register(addr, 777)
	require.Equal(t, "register 1 777", said(err))
	require.NoError(t, reg.Close())
	w, err := c.RegisterWindow(t.Context(), addr, 8192, nccl.WindowSymmetric)
	require.NoError(t, err)
	require.Equal(t, addr, w.Handle())
	for want, get := range map[uintptr]func() (uintptr, error){addr: w.Addr,
		addr + 3005: func() (uintptr, error) { return w.LSAPointer(5, 3) }, addr + 6005: func() (uintptr, error) { return w.PeerPointer(5, 3) },
		addr + 12: func() (uintptr, error) { return w.MultimemPointer(5) }} {
		got, err := get()
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	require.Equal(t, "put 3 of type 7 to 0 signal 9 ctx 0 flags 0 from 1", said(c.PutSignal(t.Context(), s, addr, 3, nccl.Float32, 0, w, 64, 9)))
	require.Equal(t, "signal 6 to 0 ctx 0 flags 0 from 1", said(c.Signal(t.Context(), s, 0, 6)))
	require.Equal(t, "wait 2: last 3 of 1 signal 4 ctx 5", said(c.WaitSignal(t.Context(), s, nccl.Expected{}, nccl.Expected{NumOps: 3, Peer: 1, Signal: 4, Context: 5})))
	require.Equal(t, "window closed 1", said(w.Close(t.Context())))
	require.NoError(t, w.Close(t.Context()), "does nothing")
	require.Zero(t, w.Handle())
	for _, get := range []func() (uintptr, error){w.Addr, func() (uintptr, error) { return w.PeerPointer(5, 3) }, func() (uintptr, error) { return w.MultimemPointer(5) }} {
		_, err := get()
		require.ErrorIs(t, err, nccl.InvalidArgument)
		require.ErrorContains(t, err, "of a closed window")
	}
	require.ErrorIs(t, c.PutSignal(t.Context(), s, addr, 3, nccl.Float32, 0, w, 64, 9), nccl.InvalidArgument)
	require.NoError(t, nccl.MemFree(c.CUDADevice(), addr))
	micros, err := c.Simulate(s, make([]nccl.Call, 0)...)
	require.NoError(t, err)
	require.Zero(t, micros)
	micros, err = c.Simulate(s, nccl.Call{Count: 1, Type: nccl.Float32}, nccl.Call{Count: 1, Type: nccl.Float32})
	require.NoError(t, err)
	require.EqualValues(t, 3, micros)
	keys, err := nccl.Params()
	require.NoError(t, err)
	require.Equal(t, []string{"NCCL_FAKE", "NCCL_OTHER"}, keys)
	value, err := nccl.Param("NCCL_FAKE")
	require.NoError(t, err)
	require.Equal(t, "42", value)
	_, err = nccl.Param("NCCL_NONE")
	require.EqualError(t, err, "nccl: ParamGetParameter of NCCL_NONE: invalid argument (4): no parameter NCCL_NONE")
}

// The host side of the device API gets its structs.
func TestFakeDeviceAPI(t *testing.T) {
	if inside, _ := nccltest.Run(t, nil); !inside {
		return
	}
	list, _ := pair(t)
	c := list[1]
	said := func(err error) string {
		require.NoError(t, err)
		return nccl.LastError()
	}
	for want, get := range map[nccl.Team]func() (nccl.Team, error){{NumRanks: 2, Rank: 1, Stride: 1}: c.LSATeam, {NumRanks: 1, Stride: 2}: c.RailTeam} {
		got, err := get()
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	words = [3]int32{40, 0, 0}
	base := uintptr(unsafe.Pointer(&words))
	require.NoError(t, c.CreateDevComm(t.Context(), base, base+4))
	require.EqualValues(t, 41, words[1])
	require.Equal(t, "devcomm 41 of rank 1", said(c.DestroyDevComm(base+4)))
	require.NoError(t, c.QueryProperties(base+8))
	require.EqualValues(t, 2, words[2])
	team := nccl.Team{NumRanks: 5, Rank: 2, Stride: 3}
	r, err := c.WorldRank(team, 4)
	require.NoError(t, err)
	require.Equal(t, 7, r)
	r, err = c.LSARank(team, 4)
	require.NoError(t, err)
	require.Equal(t, 107, r)
	require.NoError(t, nccl.LSABarriers(team, 6, base, base+4))
	require.Equal(t, [2]int32{5, 6}, [2]int32(words[:2]))
	require.NoError(t, c.GINBarriers(team, 8, base, base+4))
	require.Equal(t, [2]int32{4, 8}, [2]int32(words[:2]))
	r, err = nccl.LLA2ASlots(6, 16)
	require.NoError(t, err)
	require.Equal(t, 12, r)
	require.NoError(t, nccl.LLA2A(9, 11, base, base+4))
	require.Equal(t, [2]int32{9, 11}, [2]int32(words[:2]))
}

// The options reach the library in the layout it expects.
func TestFakeOptions(t *testing.T) {
	if inside, _ := nccltest.Run(t, nil); !inside {
		return
	}
	d, err := cuda.Open(0)
	require.NoError(t, err)
	_, err = nccl.NewCommunicator(t.Context(), d, 1, 0, nccl.ID{1}, nccl.Options{MinCTAs: 5, MaxCTAs: 3, Name: "a name"})
	require.ErrorContains(t, err, "minCTAs 5 > maxCTAs 3, name a name")
	require.ErrorIs(t, err, comm.Invalid)
	_, err = nccl.NewCommunicator(t.Context(), d, 2, 5, nccl.ID{1}, nccl.Options{})
	require.ErrorContains(t, err, "Invalid rank requested : 5/2")
	_, err = nccl.NewScalable(t.Context(), d, 1, 0, make([]nccl.ID, 2), nccl.Options{})
	require.ErrorContains(t, err, "2 ids, the last is")
}

// Communicators are made from others: split, shrunk, grown, all at once, with several ids.
func TestFakeDerived(t *testing.T) {
	if inside, _ := nccltest.Run(t, nil); !inside {
		return
	}
	list, _ := pair(t)
	each := func(fn func(c *nccl.Communicator, i int) (*nccl.Communicator, error)) []*nccl.Communicator {
		out := make([]*nccl.Communicator, len(list))
		var wg sync.WaitGroup
		for i, c := range list {
			wg.Go(func() {
				x, err := fn(c, i)
				if err != nil {
					t.Error(err)
				}
				out[i] = x
			})
		}
		wg.Wait()
		return out
	}
	rank := func(c *nccl.Communicator) [2]int {
		r, err := c.Rank()
		require.NoError(t, err)
		n, err := c.Size()
		require.NoError(t, errors.Join(err, c.Destroy()))
		return [2]int{r, n}
	}
	split := each(func(c *nccl.Communicator, i int) (*nccl.Communicator, error) { return c.Split(t.Context(), 0, -i, nil) })
	require.Equal(t, [2]int{1, 2}, rank(split[0]))
	require.Equal(t, [2]int{0, 2}, rank(split[1]))
	alone := each(func(c *nccl.Communicator, i int) (*nccl.Communicator, error) {
		return c.Split(t.Context(), -i, 0, &nccl.Options{Name: "x"})
	})
	require.Nil(t, alone[1])
	require.Equal(t, [2]int{0, 1}, rank(alone[0]))
	small, err := list[1].Shrink(t.Context(), []int{0}, true, nil)
	require.NoError(t, err)
	require.Equal(t, [2]int{0, 1}, rank(small))
	_, err = list[1].Shrink(t.Context(), []int{0, 1}, true, nil)
	require.ErrorContains(t, err, "shrink: rank 1 excludes 1 of 2, flags 1")
	id, err := list[0].UniqueID()
	require.NoError(t, err)
	third, err := cuda.Open(2)
	require.NoError(t, err)
	joined := make(chan [2]int)
	go func() {
		x, err := nccl.Join(t.Context(), third, 3, 2, id, nccl.Options{})
		if err != nil {
			t.Error(err)
		}
		joined <- rank(x)
	}()
	order := make(chan bool)
	grown := each(func(c *nccl.Communicator, i int) (*nccl.Communicator, error) {
		if i == 0 { // the stand-in takes the id from the first
			time.AfterFunc(20*time.Millisecond, func() { close(order) })
			return c.Grow(t.Context(), 3, &id, nil)
		}
		<-order
		return c.Grow(t.Context(), 3, nil, nil)
	})
	require.Equal(t, [2]int{0, 3}, rank(grown[0]))
	require.Equal(t, [2]int{1, 3}, rank(grown[1]))
	require.Equal(t, [2]int{2, 3}, <-joined)
	all, err := nccl.NewAll([]*cuda.Device{list[0].CUDADevice(), list[1].CUDADevice()})
	require.NoError(t, err)
	require.Equal(t, [2]int{1, 2}, rank(all[1]))
	require.Equal(t, [2]int{0, 2}, rank(all[0]))
	require.NoError(t, list[0].Revoke(t.Context()))
}

// A rank gives a Split up, and the others come after it: the library still has a place for its handle, and the communicator that
// came late goes with its parent.
func TestFakeLateSplit(t *testing.T) {
	if inside, _ := nccltest.Run(t, nil); !inside {
		return
	}
	list, _ := pair(t)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := list[0].Split(ctx, 0, 0, nil)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	child, err := list[1].Split(t.Context(), 0, 0, nil)
	require.NoError(t, err)
	require.NoError(t, list[0].Abort())
	ctx, cancel = context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	require.NoError(t, child.Finalize(ctx), "which waits until all others have finalized or left")
	require.NoError(t, child.Destroy())
}

// A rank gives a Join up, and its communicator comes all the same: the place for its handle is still there, and it is aborted, so that
// the others do not wait for it.
func TestFakeLateJoin(t *testing.T) {
	if inside, _ := nccltest.Run(t, []string{"FAKE_NCCL_LATE_JOIN=200"}); !inside {
		return
	}
	list, _ := pair(t)
	id, err := list[0].UniqueID()
	require.NoError(t, err)
	third, err := cuda.Open(2)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err = nccl.Join(ctx, third, 3, 2, id, nccl.Options{})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Equal(t, 1, nccl.AbortStrays(), "it has not come yet")
	grown := make([]*nccl.Communicator, 2)
	var wg sync.WaitGroup
	for i, c := range list {
		wg.Go(func() {
			var err error
			if grown[i], err = c.Grow(t.Context(), 3, &id, nil); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait() // until the third has come
	require.Zero(t, nccl.AbortStrays())
	ctx, cancel = context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for _, c := range grown {
		wg.Go(func() {
			if err := errors.Join(c.Finalize(ctx), c.Destroy()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait() // until all others have finalized or left
	require.NoError(t, third.Close())
}

// A context ends the wait for ranks that do not come, and an abort one for data.
func TestFakeCancel(t *testing.T) {
	if inside, _ := nccltest.Run(t, nil); !inside {
		return
	}
	d, err := cuda.Open(0)
	require.NoError(t, err)
	id, err := nccl.UniqueID()
	require.NoError(t, err)
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(20*time.Millisecond, func() { cancel(errors.New("the user left")) })
	begin := time.Now()
	_, err = nccl.NewCommunicator(ctx, d, 2, 0, id, nccl.Options{})
	require.ErrorContains(t, err, "the user left")
	require.Less(t, time.Since(begin), 5*time.Second)
	list, streams := pair(t)
	addr, err := d.Alloc(64)
	require.NoError(t, err)
	require.NoError(t, list[0].Enqueue(t.Context(), streams[0], nccl.Call{Kind: nccl.Recv, Dst: uint64(addr), Count: 4, Type: nccl.Int8, Peer: 1}))
	limited, stop := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer stop()
	require.ErrorIs(t, streams[0].Wait(limited), context.DeadlineExceeded)
	require.NoError(t, list[0].Abort())
	require.NoError(t, streams[0].Wait(t.Context()))
	for _, err := range []error{list[0].AsyncError(), second(list[0].Rank()), second(list[0].LSATeam()), second(list[0].Simulate(streams[0])),
		second(list[0].Split(t.Context(), 0, 0, nil)), list[0].Enqueue(t.Context(), streams[0])} {
		require.ErrorIs(t, err, nccl.InvalidArgument, "after the end")
	}
}

// An old library does what it can, and says what it cannot.
func TestFakeOld(t *testing.T) {
	if inside, _ := nccltest.Run(t, nil, "-DVERSION=21801"); !inside {
		return
	}
	list, streams := pair(t)
	for name, err := range map[string]error{
		"ncclCommShrink, which came with 2.27.3":     second(list[0].Shrink(t.Context(), nil, false, nil)),
		"ncclCommRevoke, which came with 2.28.7":     list[0].Revoke(t.Context()),
		"ncclMemAlloc, which came with 2.19.1":       second(nccl.MemAlloc(list[0].CUDADevice(), 1)),
		"ncclCommGrow, which came with 2.29.2":       second(list[0].Grow(t.Context(), 3, nil, nil)),
		"ncclAlltoAll, which came with 2.28.3":       list[0].Enqueue(t.Context(), streams[0], nccl.Call{Kind: nccl.AlltoAll}),
		"ncclScatter, which came with 2.28.3":        list[0].Enqueue(t.Context(), streams[0], nccl.Call{Kind: nccl.Scatter}),
		"ncclCommSuspend, which came with 2.29.7":    list[0].Suspend(),
		"ncclTeamLsa, which came with 2.28.3":        second(list[0].LSATeam()),
		"ncclGroupSimulateEnd, which came with 2.22": second(list[0].Simulate(streams[0])),
	} {
		var missing *nccl.MissingError
		require.ErrorAs(t, err, &missing, name)
		require.ErrorIs(t, err, comm.Unavailable)
		require.ErrorContains(t, err, "the library is version 2.18.1 and has no "+name)
	}
}

func second[T any](_ T, err error) error { return err }

func TestFakeTooOld(t *testing.T) {
	if inside, _ := nccltest.Run(t, nil, "-DVERSION=21403"); !inside {
		return
	}
	err := nccl.Init()
	require.ErrorIs(t, err, comm.Unavailable)
	require.ErrorContains(t, err, "is version 2.14.3; weft needs 2.18.1 or newer")
	require.False(t, nccl.Has("ncclNoSuch"))
}

func TestFakeAbsent(t *testing.T) {
	if inside, _ := nccltest.Run(t, nil); !inside {
		return
	}
	t.Setenv("WEFT_NCCL_LIB", t.TempDir())
	err := nccl.Init()
	require.ErrorIs(t, err, comm.Unavailable)
	require.ErrorContains(t, err, "libnccl not found; tried 1 paths")
	require.ErrorContains(t, err, "set WEFT_NCCL_LIB to the file or its folder")
	_, err = nccl.Loaded()
	require.ErrorIs(t, err, comm.Unavailable)
	require.NotEmpty(t, os.Getenv("WEFT_NCCL_LIB"))
}
