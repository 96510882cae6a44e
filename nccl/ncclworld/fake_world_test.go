//go:build linux && cgo

package ncclworld_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/comm/rendezvous"
	"github.com/weftgo/weft/dtype"
	"github.com/weftgo/weft/internal/patience"
	"github.com/weftgo/weft/nccl/nccltest"
	"github.com/weftgo/weft/nccl/ncclworld"
)

// Each way of ragged operations, with blocking communicators too, gives comm/local's results.
func TestFakeRagged(t *testing.T) {
	if inside, _ := nccltest.Run(t, nil); !inside {
		return
	}
	for _, way := range []ncclworld.Ragged{ncclworld.Grouped, ncclworld.Padded, ncclworld.Messages} {
		for _, blocking := range []bool{false, true} {
			if testing.Short() && blocking {
				continue
			}
			w := openFake(t, 8, 0, func(c *ncclworld.Config) { c.Ragged, c.Options.Blocking = way, blocking })
			runCases(t, w)
			require.NoError(t, w.Close(t.Context()))
		}
	}
}

func runCases(t *testing.T, worlds ...*comm.World) {
	t.Helper()
	var wg sync.WaitGroup
	for _, w := range worlds {
		wg.Go(func() {
			err := w.Run(t.Context(), func(ctx context.Context, c *comm.Comm) error {
				for _, x := range cases(c.Size()) {
					in, _ := x.input(c.Rank())
					got, err := x.run(ctx, c, in)
					if err != nil {
						return fmt.Errorf("%v: %w", x, err)
					}
					if want, err := x.want(c.Rank()); err != nil || !bytes.Equal(want, got) {
						return fmt.Errorf("%v: got %v, want %v: %w", x, got, want, err)
					}
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

// openTwo opens a world of four ranks as two processes would: with a store between.
func openTwo(t testing.TB, s rendezvous.Store, timeout time.Duration) [2]*comm.World {
	t.Helper()
	var worlds [2]*comm.World
	var wg sync.WaitGroup
	for i := range worlds {
		wg.Go(func() {
			var err error
			worlds[i], err = ncclworld.Open(t.Context(), ncclworld.Config{Devices: gpus(4)[2*i : 2*i+2], First: 2 * i, Size: 4, Store: s, Timeout: timeout})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return worlds
}

func closeBoth(t testing.TB, worlds [2]*comm.World) {
	t.Helper()
	var wg sync.WaitGroup
	for _, w := range worlds {
		wg.Go(func() {
			if err := w.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

// Two parts of a world find each other through a store, twice by one name, and split across the parts.
func TestFakeStore(t *testing.T) {
	if inside, _ := nccltest.Run(t, nil); !inside {
		return
	}
	s := rendezvous.NewMemory()
	for range 2 {
		worlds := openTwo(t, s, 0)
		require.Equal(t, 4, worlds[1].Size())
		require.Len(t, worlds[1].Local(), 2)
		require.Equal(t, 3, worlds[1].Local()[1].Rank())
		runCases(t, worlds[:]...)
		var wg sync.WaitGroup
		for _, w := range worlds {
			wg.Go(func() {
				if err := w.Run(t.Context(), func(ctx context.Context, c *comm.Comm) error { return splitJob(ctx, w, c) }); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		closeBoth(t, worlds)
	}
}

// A rank of the other process that does not come is named, and its process is told.
func TestFakeStoreLate(t *testing.T) {
	if inside, _ := nccltest.Run(t, nil); !inside {
		return
	}
	patience.Try(t, 200*time.Millisecond, fakeStoreLate)
}

func fakeStoreLate(t testing.TB, wait time.Duration) {
	worlds := openTwo(t, rendezvous.NewMemory(), wait)
	errs := make([]error, 4)
	var wg sync.WaitGroup
	for _, w := range worlds {
		wg.Go(func() {
			_ = w.Run(t.Context(), func(ctx context.Context, c *comm.Comm) error {
				if err := barrier(ctx, c); err != nil {
					return err
				}
				if c.Rank() == 3 {
					<-w.Done()
				}
				errs[c.Rank()] = barrier(ctx, c)
				return errs[c.Rank()]
			})
		})
	}
	wg.Wait()
	timeouts := 0
	for rank, err := range errs {
		var e *comm.Error
		require.ErrorAs(t, err, &e)
		require.Equal(t, rank, e.Rank)
		require.Equal(t, 3, e.Peer, "%v", err)
		if rank < 2 {
			require.ErrorContains(t, err, "for rank 3")
		}
		if errors.Is(err, comm.Timeout) {
			timeouts++
		}
	}
	require.Positive(t, timeouts)
	require.ErrorContains(t, worlds[1].Err(), "for rank 3")
	closeBoth(t, worlds)
}

// A part that never opens is an error of the others within the timeout.
func TestFakeStoreAbsent(t *testing.T) {
	if inside, _ := nccltest.Run(t, nil); !inside {
		return
	}
	for _, first := range []int{0, 2} {
		begin := time.Now()
		_, err := ncclworld.Open(t.Context(), ncclworld.Config{Devices: gpus(2), First: first, Size: 4, Store: rendezvous.NewMemory(), OpenTimeout: 100 * time.Millisecond})
		require.ErrorIs(t, err, comm.Timeout)
		require.Less(t, time.Since(begin), 5*time.Second)
		t.Log(err)
	}
}

// A failure inside NCCL shows at the next Wait of the rank, by its class, and ends the world.
func TestFakeAsyncError(t *testing.T) {
	// The variable is there from the start, because a new one moves the table that the stand-in's threads read.
	const nobody = "-1:0"
	if inside, _ := nccltest.Run(t, []string{"FAKE_NCCL_ASYNC=" + nobody}); !inside {
		return
	}
	for code, class := range map[string]comm.Code{"6": comm.Remote, "3": comm.Internal, "2": comm.Internal} {
		w := openFake(t, 3, 0, nil)
		errs := make([]error, 3)
		err := w.Run(t.Context(), func(ctx context.Context, c *comm.Comm) error {
			if errs[c.Rank()] = barrier(ctx, c); c.Rank() == 1 {
				require.NoError(t, os.Setenv("FAKE_NCCL_ASYNC", "1:"+code))
			}
			for errs[c.Rank()] == nil {
				errs[c.Rank()] = barrier(ctx, c)
			}
			return errs[c.Rank()]
		})
		require.NoError(t, os.Setenv("FAKE_NCCL_ASYNC", nobody))
		require.ErrorIs(t, err, class)
		require.ErrorIs(t, errs[1], class)
		require.ErrorContains(t, errs[1], "injected into rank 1")
		require.ErrorIs(t, errs[0], comm.Aborted)
		require.ErrorIs(t, w.Err(), class)
		require.NoError(t, w.Close(t.Context()))
	}
}

// Two groups in another order on one rank wait for each other for ever; the timeout ends it and asks the right question.
func TestFakeWrongOrder(t *testing.T) {
	if inside, _ := nccltest.Run(t, nil); !inside {
		return
	}
	patience.Try(t, 200*time.Millisecond, fakeWrongOrder)
}

func fakeWrongOrder(t testing.TB, wait time.Duration) {
	w := openFake(t, 2, wait, nil)
	errs := make([]error, 2)
	begin := time.Now()
	_ = w.Run(t.Context(), func(ctx context.Context, c *comm.Comm) error {
		sub, err := c.Split(ctx, 0, 0)
		require.NoError(t, err)
		order := []*comm.Comm{c, sub}
		if c.Rank() == 1 {
			order = []*comm.Comm{sub, c}
		}
		require.NoError(t, errors.Join(order[0].Barrier(comm.Stream{}), order[1].Barrier(comm.Stream{})))
		errs[c.Rank()] = c.Wait(ctx, comm.Stream{})
		return errs[c.Rank()]
	})
	require.Less(t, time.Since(begin), 10*time.Second)
	require.ErrorIs(t, w.Err(), comm.Timeout)
	require.ErrorContains(t, w.Err(), "which have called as much: do some call the operations of several groups in another order?")
	for _, err := range errs {
		require.Error(t, err)
	}
	require.NoError(t, w.Close(t.Context()))
}

// A blocking call that waits inside the library ends with the world too.
func TestFakeStuck(t *testing.T) {
	if inside, _ := nccltest.Run(t, []string{"FAKE_NCCL_STUCK=1"}); !inside {
		return
	}
	w := openFake(t, 2, 0, func(c *ncclworld.Config) { c.Options.Blocking = true })
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(50*time.Millisecond, func() { cancel(errors.New("the user left")) })
	errs := make([]error, 2)
	begin := time.Now()
	err := w.Run(ctx, func(ctx context.Context, c *comm.Comm) error {
		errs[c.Rank()] = barrier(ctx, c)
		return errs[c.Rank()]
	})
	require.ErrorContains(t, err, "the user left")
	require.ErrorIs(t, errs[1], comm.Aborted)
	require.NoError(t, w.Close(t.Context()))
	require.Less(t, time.Since(begin), 10*time.Second)
}

// One rank closes alone: it waits until its ctx ends, and says so.
func TestFakeCloseAlone(t *testing.T) {
	if inside, _ := nccltest.Run(t, nil); !inside {
		return
	}
	for _, blocking := range []bool{false, true} {
		w := openFake(t, 2, 0, func(c *ncclworld.Config) { c.Options.Blocking = blocking })
		require.NoError(t, w.Run(t.Context(), barrier))
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		begin := time.Now()
		err := w.Local()[0].Close(ctx)
		cancel()
		require.ErrorIs(t, err, comm.Timeout, "blocking %v", blocking)
		require.ErrorContains(t, err, "not all ranks closed")
		require.Less(t, time.Since(begin), 10*time.Second)
		w.Abort(errors.New("enough"))
		require.NoError(t, w.Close(t.Context()))
	}
}

// Groups of eight goroutines, each with its own, at once.
func TestFakeGroups(t *testing.T) {
	if inside, _ := nccltest.Run(t, nil); !inside {
		return
	}
	w := openFake(t, 8, 0, nil)
	err := w.Run(t.Context(), func(ctx context.Context, c *comm.Comm) error {
		for i := range 200 {
			x := caseOf{kind: comm.AllToAllV, typ: dtype.I32, counts: []int{1, 0, 2, i % 5, 0, 3, 1, 4}, cols: 3}
			in, _ := x.input(c.Rank())
			got, err := x.run(ctx, c, in)
			if err != nil {
				return err
			}
			if i%50 != 0 {
				continue
			}
			if want, err := x.want(c.Rank()); err != nil || !bytes.Equal(got, want) {
				return fmt.Errorf("%v: got %v, want %v: %w", x, got, want, err)
			}
		}
		return nil
	})
	require.NoError(t, err)
	require.NoError(t, w.Close(t.Context()))
}

// The tests of several GPUs, over the stand-in.
func TestFakeDisagree(t *testing.T) {
	if inside, _ := nccltest.Run(t, nil); !inside {
		return
	}
	for range 20 {
		w := openFake(t, 4, 0, nil)
		require.NoError(t, w.Run(t.Context(), func(ctx context.Context, c *comm.Comm) error { return disagree(ctx, c) }))
		require.NoError(t, w.Close(t.Context()))
	}
}

// What Open refuses.
func TestOpenRefuses(t *testing.T) {
	for text, cfg := range map[string]ncclworld.Config{
		"no Devices: name one GPU":     {},
		"cpu:0 is no GPU":              {Devices: make([]comm.Device, 1)},
		"cuda:0 has a rank already":    {Devices: append(gpus(1), gpus(1)...)},
		"a Store must bring them":      {Devices: gpus(2), Size: 4},
		"ranks 3 to 4 of a world of 4": {Devices: gpus(2), First: 3, Size: 4},
		"timeout -1ns":                 {Devices: gpus(1), Timeout: -1},
	} {
		_, err := ncclworld.Open(t.Context(), cfg)
		require.ErrorIs(t, err, comm.Invalid)
		require.ErrorContains(t, err, text)
	}
}

// An enqueue allocates nothing once its buffers have their size.
func TestFakeNoAllocations(t *testing.T) {
	if inside, _ := nccltest.Run(t, nil); !inside {
		return
	}
	w := openFake(t, 1, 0, func(c *ncclworld.Config) { c.Options.Blocking = true })
	c := w.Local()[0]
	b, err := comm.Alloc(c, dtype.F32, 4, 8)
	require.NoError(t, err)
	counts := []int{4}
	calls := func() {
		err := errors.Join(c.AllReduce(comm.Stream{}, b, b, comm.Sum), c.AllGatherV(comm.Stream{}, comm.Host(counts), comm.Part{Dst: b, Src: b}))
		if err != nil {
			t.Error(err)
		}
	}
	calls()
	require.Zero(t, testing.AllocsPerRun(100, calls))
	require.NoError(t, c.Wait(t.Context(), comm.Stream{}))
	require.NoError(t, w.Close(t.Context()))
}
