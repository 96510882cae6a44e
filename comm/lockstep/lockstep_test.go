package lockstep

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/comm/local"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t testing.TB, ranks int) *comm.World {
	w, err := local.Open(local.Config{Ranks: ranks, Timeout: time.Second})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.Close(context.Background())) })
	return w
}

// agree runs one step where rank i says records[i], and returns what each rank got.
func agree(t testing.TB, tp int, records []Record) ([]Agreement, []error) {
	w := open(t, len(records))
	got, errs := make([]Agreement, len(records)), make([]error, len(records))
	require.NoError(t, w.Run(context.Background(), func(ctx context.Context, c *comm.Comm) error {
		l, err := New(c, Config{TP: tp})
		if err != nil {
			return err
		}
		got[c.Rank()], errs[c.Rank()] = l.Agree(ctx, records[c.Rank()])
		return l.Close()
	}))
	return got, errs
}

func TestAgree(t *testing.T) {
	tests := []struct {
		name    string
		tp      int
		records []Record
		want    Agreement
	}{
		{"one rank runs", 1, []Record{{Tokens: 3, Hash: 7, Generation: 5}},
			Agreement{Decision: Run, Tokens: []int{3}, MaxTokens: 3, SumTokens: 3, Balanced: true, Generation: 5}},
		{"one of four has work", 1, []Record{{}, {}, {Tokens: 9, Hash: 1, Generation: 2}, {Generation: 4}},
			Agreement{Decision: Run, Tokens: []int{0, 0, 9, 0}, MaxTokens: 9, SumTokens: 9}},
		{"nobody has work", 1, []Record{{Generation: 8}, {Generation: 6}, {Generation: 7}},
			Agreement{Decision: Sleep, Tokens: []int{0, 0, 0}, Balanced: true, Generation: 6}},
		{"work comes before a stop", 1, []Record{{Stop: true}, {Tokens: 1}},
			Agreement{Decision: Run, Tokens: []int{0, 1}, MaxTokens: 1, SumTokens: 1}},
		{"one stops, all do", 1, []Record{{}, {Stop: true}, {}},
			Agreement{Decision: Stop, Tokens: []int{0, 0, 0}, Balanced: true}},
		{"tokens of a replica count once, and only leaders' generations", 2,
			[]Record{{Tokens: 4, Hash: 1, Generation: 9}, {Tokens: 4, Hash: 1}, {Tokens: 4, Hash: 2, Generation: 10}, {Tokens: 4, Hash: 2}},
			Agreement{Decision: Run, Tokens: []int{4, 4, 4, 4}, MaxTokens: 4, SumTokens: 8, Balanced: true, Generation: 9}},
		{"mode and padding", 1, []Record{{Tokens: 4, PaddedTokens: 8, Mode: -2}, {PaddedTokens: 8, Mode: -2}},
			Agreement{Decision: Run, Tokens: []int{4, 0}, MaxTokens: 4, SumTokens: 4, PaddedTokens: 8, Mode: -2}},
		{"hashes keep all bits", 2, []Record{{Tokens: 1, Hash: 1 << 63, Generation: 1<<64 - 1}, {Tokens: 1, Hash: 1 << 63}},
			Agreement{Decision: Run, Tokens: []int{1, 1}, MaxTokens: 1, SumTokens: 1, Balanced: true, Generation: 1<<64 - 1}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, errs := agree(t, tt.tp, tt.records)
			tt.want.Step = 1
			for rank := range got {
				require.NoError(t, errs[rank])
				require.Equal(t, tt.want, got[rank], "rank %d", rank)
			}
		})
	}
}

func TestDisagreementNamesBothSides(t *testing.T) {
	tests := []struct {
		name    string
		tp      int
		records []Record
		peer    int
		text    []string
	}{
		{"mode", 1, []Record{{Mode: 1}, {Mode: 1}, {Mode: 2}, {Mode: 1}}, 2,
			[]string{"the mode", "ranks [0 1 3] say 1", "rank 2 says 2"}},
		{"padding", 1, []Record{{Tokens: 3, PaddedTokens: 64}, {PaddedTokens: 128}}, 1,
			[]string{"padded tokens", "rank 0 says 64", "rank 1 says 128"}},
		{"hash inside a replica", 2, []Record{{Tokens: 1, Hash: 5}, {Tokens: 1, Hash: 5}, {Tokens: 2, Hash: 6}, {Tokens: 2, Hash: 7}}, 3,
			[]string{"the batch of replica 1", "rank 2 says 2 tokens with hash 0000000000000006", "rank 3 says 2 tokens with hash 0000000000000007"}},
		{"tokens inside a replica", 4, []Record{{Tokens: 1}, {Tokens: 1}, {}, {Tokens: 1}}, 2,
			[]string{"replica 0", "ranks [0 1 3] say 1 tokens", "rank 2 says 0 tokens"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			start := time.Now()
			_, errs := agree(t, tt.tp, tt.records)
			require.Less(t, time.Since(start), time.Second)
			for rank, err := range errs {
				require.ErrorIs(t, err, comm.Invalid)
				var e *comm.Error
				require.ErrorAs(t, err, &e)
				require.Equal(t, rank, e.Rank)
				require.Equal(t, tt.peer, e.Peer)
				for _, s := range tt.text {
					require.ErrorContains(t, err, s)
				}
			}
		})
	}
}

// In a group made by Split the errors name ranks of the world.
func TestDisagreementInAGroup(t *testing.T) {
	w := open(t, 4)
	errs := make([]error, 4)
	require.NoError(t, w.Run(context.Background(), func(ctx context.Context, c *comm.Comm) error {
		g, err := c.Split(ctx, c.Rank()/2, 0)
		if err != nil {
			return err
		}
		l, err := New(g, Config{})
		if err != nil {
			return err
		}
		r := Record{}
		if c.Rank() == 3 {
			r.Mode = 5
		}
		_, errs[c.Rank()] = l.Agree(ctx, r)
		return nil
	}))
	require.NoError(t, errs[0])
	require.NoError(t, errs[1])
	for _, rank := range []int{2, 3} {
		require.EqualError(t, errs[rank], fmt.Sprintf("lockstep: rank %d: invalid (rank 3): step 1: ranks disagree on the mode: rank 2 says 0; rank 3 says 5", rank))
	}
}

func TestRankAStepAhead(t *testing.T) {
	w := open(t, 2)
	err := w.Run(context.Background(), func(ctx context.Context, c *comm.Comm) error {
		l, err := New(c, Config{})
		require.NoError(t, err)
		l.step = uint64(c.Rank())
		_, err = l.Agree(ctx, Record{})
		require.ErrorContains(t, err, "rank 0 says 1; rank 1 says 2")
		_, again := l.Agree(ctx, Record{})
		require.Equal(t, err, again, "out of step for good")
		return nil
	})
	require.NoError(t, err)
}

// A rank that is in a collective of its own while the others agree gets an error, and so do they.
func TestRankInAnotherCollective(t *testing.T) {
	for name, call := range map[string]func(*comm.Comm) error{
		"barrier":                func(c *comm.Comm) error { return c.Barrier(comm.Stream{}) },
		"all_gather, same shape": func(c *comm.Comm) error { return gatherZeros(c, words) },
		"all_gather, other":      func(c *comm.Comm) error { return gatherZeros(c, 3) },
	} {
		t.Run(name, func(t *testing.T) {
			w := open(t, 3)
			errs := make([]error, 3)
			start := time.Now()
			_ = w.Run(context.Background(), func(ctx context.Context, c *comm.Comm) error {
				if c.Rank() == 2 {
					errs[2] = call(c)
					return errs[2]
				}
				l, err := New(c, Config{})
				require.NoError(t, err)
				_, errs[c.Rank()] = l.Agree(ctx, Record{})
				return errs[c.Rank()]
			})
			require.Error(t, errs[0])
			require.Error(t, errs[1])
			require.Less(t, time.Since(start), time.Second)
		})
	}
}

func gatherZeros(c *comm.Comm, cols int) error {
	return c.AllGather(comm.Stream{}, comm.Of(make([]int64, c.Size()*cols), cols), comm.Of(make([]int64, cols), cols))
}

func TestRankThatDoesNotComeIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, err := local.Open(local.Config{Ranks: 3, Timeout: 5 * time.Second})
		require.NoError(t, err)
		start := time.Now()
		err = w.Run(context.Background(), func(ctx context.Context, c *comm.Comm) error {
			if c.Rank() == 1 {
				<-ctx.Done()
				return nil
			}
			l, err := New(c, Config{})
			require.NoError(t, err)
			_, err = l.Agree(ctx, Record{})
			return err
		})
		require.ErrorIs(t, err, comm.Timeout)
		var e *comm.Error
		require.ErrorAs(t, err, &e)
		require.Equal(t, 1, e.Peer)
		require.Equal(t, 5*time.Second, time.Since(start))
	})
}

func TestInvalidRecordAndConfig(t *testing.T) {
	c := open(t, 3).Local()[0]
	_, err := New(c, Config{TP: 2})
	require.ErrorContains(t, err, "3 ranks are not whole replicas of 2 ranks")
	l, err := New(c, Config{})
	require.NoError(t, err)
	_, err = l.Agree(context.Background(), Record{Tokens: 5, PaddedTokens: 4})
	require.ErrorContains(t, err, "5 tokens padded to 4")
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errors.New("enough"))
	_, err = l.Agree(ctx, Record{})
	require.ErrorIs(t, err, comm.Aborted)
	require.ErrorContains(t, err, "enough")
}

// Ranks sleep and wake together; every piece of work is found by the rank it was given to, whenever it comes.
func TestSleepLosesNoWakeUp(t *testing.T) {
	const ranks, pieces = 4, 500
	w := open(t, ranks)
	var bell Bell
	var work [ranks]atomic.Int64
	var done atomic.Int64
	var stop atomic.Bool
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		for i := range pieces {
			work[i*7%ranks].Add(1)
			bell.Ring()
			for i%3 == 0 && done.Load() <= int64(i) { // let everyone fall asleep now and then
				time.Sleep(10 * time.Microsecond)
			}
		}
		stop.Store(true)
		bell.Ring()
	}()
	var runs [ranks]int
	require.NoError(t, w.Run(context.Background(), func(ctx context.Context, c *comm.Comm) error {
		l, err := New(c, Config{})
		if err != nil {
			return err
		}
		for {
			r := Record{Generation: bell.Generation(), Stop: stop.Load()}
			r.Tokens = int(work[c.Rank()].Swap(0))
			a, err := l.Agree(ctx, r)
			if err != nil {
				return err
			}
			switch a.Decision {
			case Run:
				runs[c.Rank()]++
				done.Add(int64(r.Tokens))
			case Sleep:
				if err := bell.Wait(ctx, a.Generation); err != nil {
					return err
				}
			case Stop:
				return nil
			}
		}
	}))
	<-finished
	require.EqualValues(t, pieces, done.Load())
	require.Equal(t, [ranks]int{runs[0], runs[0], runs[0], runs[0]}, runs)
}

func TestBellWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b Bell
		var woken atomic.Int32
		for range 3 {
			go func() {
				require.NoError(t, b.Wait(t.Context(), 1))
				woken.Add(1)
			}()
		}
		b.Ring()
		synctest.Wait()
		require.Zero(t, woken.Load(), "generation 1 is not after 1")
		b.Ring()
		synctest.Wait()
		require.EqualValues(t, 3, woken.Load())
		require.EqualValues(t, 2, b.Generation())

		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Hour, errors.New("slept long enough"))
		defer cancel()
		require.EqualError(t, b.Wait(ctx, 2), "slept long enough")
	})
}

func TestAgreeAllocatesNothing(t *testing.T) {
	w := open(t, 1)
	l, err := New(w.Local()[0], Config{})
	require.NoError(t, err)
	require.Zero(t, testing.AllocsPerRun(100, func() { _, _ = l.Agree(context.Background(), Record{Tokens: 1}) }))
}

func BenchmarkAgree(b *testing.B) {
	for _, ranks := range []int{1, 2, 8} {
		b.Run(fmt.Sprintf("ranks%d", ranks), func(b *testing.B) {
			w := open(b, ranks)
			b.ReportAllocs()
			require.NoError(b, w.Run(context.Background(), func(ctx context.Context, c *comm.Comm) error {
				l, err := New(c, Config{})
				if err != nil {
					return err
				}
				for range b.N {
					if _, err := l.Agree(ctx, Record{Tokens: c.Rank()}); err != nil {
						return err
					}
				}
				return nil
			}))
		})
	}
}
