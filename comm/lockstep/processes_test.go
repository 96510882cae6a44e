package lockstep

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/comm/local"
	"github.com/weftgo/weft/comm/rendezvous"
)

// join makes the clients of a job whose processes are all this one, over TCP.
func join(t testing.TB, size int) []*rendezvous.Client {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s, err := rendezvous.Serve(l, rendezvous.ServerConfig{Token: "t", Size: size, Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	clients, errs := make([]*rendezvous.Client, size), make([]error, size)
	var wg sync.WaitGroup
	for i := range size {
		wg.Go(func() {
			clients[i], errs[i] = rendezvous.Join(context.Background(), rendezvous.Job{Rank: i, Size: size, Address: l.Addr().String(), Token: "t", Served: true}, rendezvous.Config{})
		})
	}
	wg.Wait()
	require.NoError(t, errors.Join(errs...))
	t.Cleanup(func() {
		for _, c := range clients {
			_ = c.Leave(context.Background())
		}
		require.NoError(t, s.Close())
	})
	return clients
}

// together runs fn on ranks of each of several processes.
func together(t testing.TB, clients []*rendezvous.Client, ranks int, cfg Config, fn func(ctx context.Context, rank int, l *Lockstep) error) []error {
	errs := make([]error, len(clients))
	var wg sync.WaitGroup
	for p, client := range clients {
		w, err := local.Open(local.Config{Ranks: ranks, Timeout: 10 * time.Second})
		require.NoError(t, err)
		cfg := cfg
		cfg.Processes = client.Group("lockstep")
		wg.Go(func() {
			defer w.Close(context.Background())
			errs[p] = w.Run(context.Background(), func(ctx context.Context, c *comm.Comm) error {
				l, err := New(c, cfg)
				if err != nil {
					return err
				}
				defer l.Close()
				return fn(ctx, p*ranks+c.Rank(), l)
			})
		})
	}
	wg.Wait()
	return errs
}

// Ranks of several processes get what the same ranks get in one.
func TestProcessesAgreeAsOne(t *testing.T) {
	for _, split := range [][2]int{{1, 4}, {2, 2}, {4, 1}} {
		for _, tp := range []int{1, 2, 4} {
			t.Run(fmt.Sprintf("%dx%d tp%d", split[0], split[1], tp), func(t *testing.T) {
				steps := make([][]Record, 3)
				for s := range steps {
					for rank := range 4 {
						d := rank / tp
						steps[s] = append(steps[s], Record{Tokens: s * d, Hash: uint64(s*d) << 60, Mode: s, PaddedTokens: 16, Generation: 7, Stop: s == 0 && rank == 3})
					}
				}
				clients := join(t, split[0])
				var mu sync.Mutex
				got := make([][]Agreement, 3)
				errs := together(t, clients, split[1], Config{TP: tp}, func(ctx context.Context, rank int, l *Lockstep) error {
					for s := range steps {
						a, err := l.Agree(ctx, steps[s][rank])
						if err != nil {
							return err
						}
						a.Tokens = append([]int{}, a.Tokens...)
						mu.Lock()
						got[s] = append(got[s], a)
						mu.Unlock()
					}
					return nil
				})
				require.NoError(t, errors.Join(errs...))
				for s := range steps {
					alone, errs := agree(t, tp, steps[s])
					require.NoError(t, errors.Join(errs...))
					want := alone[0]
					want.Step = uint64(s + 1)
					require.Len(t, got[s], 4)
					for _, a := range got[s] {
						require.Equal(t, want, a)
					}
				}
			})
		}
	}
}

// A disagreement between processes names both sides on all ranks, by their numbers among all.
func TestProcessesDisagree(t *testing.T) {
	clients := join(t, 2)
	said := make([]error, 4)
	errs := together(t, clients, 2, Config{TP: 4}, func(ctx context.Context, rank int, l *Lockstep) error {
		r := Record{Tokens: 3, Hash: 5}
		if rank == 3 {
			r.Hash = 6
		}
		_, said[rank] = l.Agree(ctx, r)
		return nil
	})
	require.NoError(t, errors.Join(errs...))
	for rank, err := range said {
		require.EqualError(t, err, fmt.Sprintf("lockstep: rank %d: invalid (rank 3): step 1: ranks disagree on the batch of replica 0: "+
			"ranks [0 1 2] say 3 tokens with hash 0000000000000005; rank 3 says 3 tokens with hash 0000000000000006", rank))
	}
}

// A process that does not come, one that fails, and one with another number of ranks.
func TestProcessesFail(t *testing.T) {
	start := time.Now()
	errs := together(t, join(t, 2), 2, Config{Timeout: time.Second}, func(ctx context.Context, rank int, l *Lockstep) error {
		if rank >= 2 {
			return nil
		}
		_, err := l.Agree(ctx, Record{})
		return err
	})
	require.ErrorIs(t, errs[0], comm.Timeout)
	require.ErrorContains(t, errs[0], "waited for rank 1")
	require.NoError(t, errs[1])
	require.Less(t, time.Since(start), 5*time.Second)

	clients := join(t, 2)
	errs = together(t, clients, 2, Config{}, func(ctx context.Context, rank int, l *Lockstep) error {
		if rank >= 2 {
			return clients[1].Abort(ctx, errors.New("no memory"))
		}
		_, err := l.Agree(ctx, Record{})
		return err
	})
	require.ErrorIs(t, errs[0], comm.Remote)
	require.ErrorContains(t, errs[0], "failed: no memory")

	// The world of this process dies: its rank 0 does not go on waiting for other processes.
	errs = together(t, join(t, 2), 2, Config{}, func(ctx context.Context, rank int, l *Lockstep) error {
		switch rank {
		case 0:
			_, err := l.Agree(ctx, Record{})
			return err
		case 1:
			_, err := l.Agree(ctx, Record{Tokens: -1})
			return err
		}
		return nil
	})
	require.ErrorContains(t, errs[0], "-1 tokens")
	_, err := New(open(t, 1).Local()[0], Config{TP: 2, Processes: join(t, 3)[0].Group("x")})
	require.ErrorContains(t, err, "3 ranks are not whole replicas of 2 ranks")
}

// Processes with different numbers of ranks: each says so at once on all of its ranks, and says it again.
func TestProcessesOfDifferentSizes(t *testing.T) {
	clients := join(t, 2)
	var wg sync.WaitGroup
	start := time.Now()
	said, again := make([]error, 5), make([]error, 5)
	for p, ranks := range []int{2, 3} {
		w, err := local.Open(local.Config{Ranks: ranks, Timeout: 10 * time.Second})
		require.NoError(t, err)
		for _, c := range w.Local() {
			wg.Go(func() {
				l, err := New(c, Config{Processes: clients[p].Group("lockstep")})
				require.NoError(t, err)
				_, said[2*p+c.Rank()] = l.Agree(context.Background(), Record{})
				_, again[2*p+c.Rank()] = l.Agree(context.Background(), Record{})
			})
		}
		t.Cleanup(func() { _ = w.Close(context.Background()) })
	}
	wg.Wait()
	require.Less(t, time.Since(start), 5*time.Second)
	for i, err := range said {
		require.ErrorContains(t, err, "give all the same number", "%d", i)
		require.ErrorContains(t, again[i], "give all the same number", "%d", i)
	}
	require.ErrorIs(t, said[0], comm.Invalid)
	require.Equal(t, said[0], again[0])
	require.Equal(t, said[2], again[2])
}

// Processes sleep and wake together; every piece of work is found, whichever process it is given to.
func TestProcessesSleepLosesNoWakeUp(t *testing.T) {
	const processes, ranks, pieces = 3, 2, 150
	clients := join(t, processes)
	var bells [processes]Bell
	var work [processes * ranks]atomic.Int64
	var done atomic.Int64
	var stop atomic.Bool
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		for i := range pieces {
			rank := i * 5 % (processes * ranks)
			work[rank].Add(1)
			bells[rank/ranks].Ring()
			for i%3 == 0 && done.Load() <= int64(i) {
				time.Sleep(10 * time.Microsecond)
			}
		}
		stop.Store(true)
		bells[1].Ring()
	}()
	var slept atomic.Int64
	errs := together(t, clients, ranks, Config{}, func(ctx context.Context, rank int, l *Lockstep) error {
		bell := &bells[rank/ranks]
		for {
			r := Record{Generation: bell.Generation(), Stop: rank/ranks == 1 && stop.Load()}
			r.Tokens = int(work[rank].Swap(0))
			a, err := l.Agree(ctx, r)
			if err != nil {
				return err
			}
			switch a.Decision {
			case Run:
				done.Add(int64(r.Tokens))
			case Sleep:
				slept.Add(1)
				if err := l.Sleep(ctx, bell, a); err != nil {
					return err
				}
			case Stop:
				return nil
			}
		}
	})
	<-finished
	require.NoError(t, errors.Join(errs...))
	require.EqualValues(t, pieces, done.Load())
	require.NotZero(t, slept.Load())
	t.Log("sleeps:", slept.Load()/(processes*ranks))
}

// A process that is lost ends the sleep of all others.
func TestProcessIsLostDuringSleep(t *testing.T) {
	clients := join(t, 2)
	var bell Bell
	errs := together(t, clients, 2, Config{}, func(ctx context.Context, rank int, l *Lockstep) error {
		a, err := l.Agree(ctx, Record{})
		if err != nil {
			return err
		}
		if rank >= 2 {
			time.Sleep(10 * time.Millisecond)
			return clients[1].Abort(ctx, errors.New("no memory"))
		}
		return l.Sleep(ctx, &bell, a)
	})
	require.ErrorContains(t, errs[0], "no memory")
}

// After it the world is dead, also where no World.Run ends it: the other ranks of the process wait for nobody.
func TestLossDuringSleepEndsTheWorld(t *testing.T) {
	clients := join(t, 2)
	w, err := local.Open(local.Config{Ranks: 2, Timeout: 10 * time.Second})
	require.NoError(t, err)
	defer w.Close(context.Background())
	var bell Bell
	l, err := New(w.Local()[0], Config{Processes: clients[0].Group("lockstep")})
	require.NoError(t, err)
	time.AfterFunc(10*time.Millisecond, func() { _ = clients[1].Abort(context.Background(), errors.New("no memory")) })
	require.ErrorIs(t, l.Sleep(context.Background(), &bell, Agreement{}), comm.Remote)
	require.ErrorContains(t, w.Err(), "no memory")
}

// The time of an agreement between processes over TCP on the loopback device.
func BenchmarkAgreeProcesses(b *testing.B) {
	for _, shape := range [][2]int{{2, 1}, {2, 4}, {4, 1}, {8, 1}} {
		b.Run(fmt.Sprintf("processes%d/ranks%d", shape[0], shape[1]), func(b *testing.B) {
			clients := join(b, shape[0])
			b.ResetTimer()
			errs := together(b, clients, shape[1], Config{}, func(ctx context.Context, rank int, l *Lockstep) error {
				for range b.N {
					if _, err := l.Agree(ctx, Record{Tokens: rank}); err != nil {
						return err
					}
				}
				return nil
			})
			require.NoError(b, errors.Join(errs...))
		})
	}
}
