package local

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/comm/commtest"
	"github.com/weftgo/weft/internal/race"
)

func TestOpen(t *testing.T) {
	w, err := Open(Config{})
	require.NoError(t, err)
	require.Equal(t, 1, w.Size())
	for _, cfg := range []Config{{Ranks: 65}, {Ranks: -1}, {Timeout: -time.Second}} {
		_, err := Open(cfg)
		require.ErrorIs(t, err, comm.Invalid)
	}
}

// In a bubble of fake time the deadline costs nothing, and the waits must be parked for the clock to move.
func TestDeadlineInFakeTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := openTimeout(t, 8, 10*time.Minute)
		begin := time.Now()
		errs := make([]error, 8)
		_ = w.Run(t.Context(), func(ctx context.Context, c *comm.Comm) error {
			for range 3 { // waits that end well leave the timer as it is
				time.Sleep(time.Duration(c.Rank()) * time.Minute)
				if err := c.Barrier(comm.Stream{}); err != nil {
					return err
				}
			}
			if c.Rank() == 2 || c.Rank() == 5 {
				<-w.Done()
				return nil
			}
			errs[c.Rank()] = c.Barrier(comm.Stream{})
			return errs[c.Rank()]
		})
		require.Equal(t, 3*7*time.Minute+10*time.Minute, time.Since(begin))
		for rank, err := range errs {
			if rank == 2 || rank == 5 {
				continue
			}
			require.ErrorIs(t, err, comm.Timeout)
			require.EqualError(t, err, fmt.Sprintf("barrier #4: rank %d: timeout (rank 2): waited 10m0s (of 10m0s) for ranks 2, 5 in barrier #4", rank))
		}
	})
}

// A rank that is slow to enter a call must not be blamed when all came in time.
func TestWaitIsMeasured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := openTimeout(t, 3, time.Minute)
		commtest.Run(t, w, func(ctx context.Context, tb testing.TB, c *comm.Comm) {
			time.Sleep(time.Duration(c.Rank()) * time.Second)
			require.NoError(tb, c.Barrier(comm.Stream{}))
			st := c.Stats()[comm.Barrier]
			// The time before a rank parks, and that of the work, are measured by a clock that is real.
			require.InDelta(tb, time.Duration(2-c.Rank())*time.Second, st.Wait, float64(time.Second/2))
			require.InDelta(tb, st.Wait, st.Time, float64(time.Second/2))
			require.GreaterOrEqual(tb, st.Time, st.Wait)
		})
	})
}

// A rank that closes leaves nobody waiting for it, in a collective or for a message.
func TestCloseTellsTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := openTimeout(t, 3, time.Minute)
		begin := time.Now()
		commtest.Run(t, w, func(ctx context.Context, tb testing.TB, c *comm.Comm) {
			sub, err := c.Split(ctx, 0, 0)
			require.NoError(tb, err)
			switch c.Rank() {
			case 0:
				err = sub.Barrier(comm.Stream{})
			case 1:
				err = sub.Recv(comm.Stream{}, comm.Of(make([]float32, 2), 2), 2)
			case 2:
				time.Sleep(time.Second)
				require.NoError(tb, sub.Close(ctx))
				require.NoError(tb, sub.Close(ctx), "twice")
				err = sub.Barrier(comm.Stream{})
			}
			require.ErrorIs(tb, err, comm.Invalid)
			require.ErrorContains(tb, err, "closed")
			if c.Rank() == 1 { // a message that was never begun
				err = sub.Send(comm.Stream{}, comm.Of(make([]float32, 2), 2), 2)
				require.ErrorContains(tb, err, "rank 2 closed")
			}
			require.NoError(tb, c.Barrier(comm.Stream{}), "the world is unharmed")
		})
		require.Equal(t, time.Second, time.Since(begin))
		require.NoError(t, w.Err())
	})
}

// A Split that its caller gives up may be tried again: the rank left the meeting and can come back.
func TestSplitCancelledAndTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := openTimeout(t, 2, time.Minute)
		commtest.Run(t, w, func(ctx context.Context, tb testing.TB, c *comm.Comm) {
			if c.Rank() == 0 {
				short, cancel := context.WithCancelCause(ctx)
				time.AfterFunc(time.Second, func() { cancel(errors.New("changed my mind")) })
				_, err := c.Split(short, 0, 0)
				require.ErrorIs(tb, err, comm.Aborted)
				require.ErrorContains(tb, err, "changed my mind")
			} else {
				time.Sleep(2 * time.Second)
			}
			sub, err := c.Split(ctx, 0, 0)
			require.NoError(tb, err)
			require.Equal(tb, 2, sub.Size())
			require.NoError(tb, sub.Barrier(comm.Stream{}))
		})
	})
}

// A rank that gave up its Split and does not come back is missed like any other.
func TestSplitCancelledForGood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := openTimeout(t, 2, time.Minute)
		var got error
		_ = w.Run(t.Context(), func(ctx context.Context, c *comm.Comm) error {
			if c.Rank() == 0 {
				short, cancel := context.WithCancel(ctx)
				time.AfterFunc(time.Second, cancel)
				_, err := c.Split(short, 0, 0)
				require.ErrorIs(t, err, comm.Aborted)
				<-w.Done()
				return nil
			}
			time.Sleep(2 * time.Second)
			_, got = c.Split(ctx, 0, 0)
			return got
		})
		require.EqualError(t, got, "split: rank 1: timeout (rank 0): waited 1m0s (of 1m0s) for rank 0 in split color 0 key 0")
	})
}

// While all ranks are in a call, an abort from outside does not tear it: it ends well on all ranks or on none.
func TestAbortDoesNotTearACall(t *testing.T) {
	for i := range 50 {
		w := openTimeout(t, 4, time.Minute)
		var calls [4]int
		_ = w.Run(t.Context(), func(ctx context.Context, c *comm.Comm) error {
			if c.Rank() == 0 {
				time.AfterFunc(time.Duration(i)*20*time.Microsecond, func() { w.Abort(errors.New("now")) })
			}
			src, dst := make([]int32, 1<<14), make([]int32, 1<<14)
			for {
				for j := range src { // ours again whenever a call has returned: the race detector watches
					src[j] = int32(calls[c.Rank()])
				}
				clear(dst)
				if err := c.AllReduce(comm.Stream{}, comm.Of(dst, 128), comm.Of(src, 128), comm.Sum); err != nil {
					clear(src)
					clear(dst)
					return err
				}
				for _, v := range dst {
					if v != int32(4*calls[c.Rank()]) {
						return fmt.Errorf("got %d in call %d", v, calls[c.Rank()])
					}
				}
				calls[c.Rank()]++
			}
		})
		require.EqualError(t, w.Err(), "now")
		require.Equal(t, [4]int{calls[0], calls[0], calls[0], calls[0]}, calls)
	}
}

// A panic in the work of one rank must not leave the others waiting for it.
func TestPanicInTheWork(t *testing.T) {
	for _, rows := range []int{1, 1 << 12} { // done whole, and shared
		m := newMeeting([]int{0, 1}, time.Minute, &life{dead: make(chan struct{})})
		errs := make(chan error, 2)
		for pos := range 2 {
			go func() {
				x := comm.Of(make([]float32, rows*16), 16)
				call := &m.seats[pos].calls[0]
				// A driver bug: an operation that was not validated.
				bad := comm.Of(make([]float32, 16*(pos+rows-1)), 16)
				op := &comm.Op{Kind: comm.AllReduce, Parts: []comm.Part{{Dst: bad, Src: x}}}
				if err := call.publish(op); err != nil {
					panic(err)
				}
				errs <- m.run(context.Background(), pos, call, &op.Stats)
			}()
		}
		for range 2 {
			err := <-errs
			require.ErrorIs(t, err, comm.Internal)
			require.ErrorContains(t, err, "panic")
		}
	}
}

func TestNoAllocations(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector makes sync.Pool forget at random")
	}
	const ranks, runs = 4, 200
	w := open(t, ranks)
	for name, bytes := range map[string]int{"small": 2 << 10, "large": 256 << 10} {
		for _, kind := range []comm.OpKind{comm.AllReduce, comm.AllGatherV, comm.ReduceScatterV, comm.Barrier, comm.AllToAllV} {
			commtest.Run(t, w, func(ctx context.Context, tb testing.TB, c *comm.Comm) {
				fn := collective(c, kind, bytes)
				for range 10 { // pools, timers
					require.NoError(tb, fn())
				}
				if c.Rank() != 0 {
					for range runs + 1 {
						require.NoError(tb, fn())
					}
					return
				}
				// The count is of the whole process: all ranks are in it.
				n := testing.AllocsPerRun(runs, func() {
					if err := fn(); err != nil {
						panic(err)
					}
				})
				require.Less(tb, n, 1.0, "%v %s", kind, name)
			})
		}
	}
}
