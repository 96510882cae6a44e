package eptest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/dtype"
	"github.com/weftgo/weft/ep"
	"github.com/weftgo/weft/internal/kernels/exchange"
	"github.com/weftgo/weft/internal/patience"
)

func isInvalid(err error, text string) bool {
	return errors.Is(err, comm.Invalid) && strings.Contains(err.Error(), text)
}

// testRefused: a dispatch that is wrong on one rank is an Invalid error on all, and the next one works.
func testRefused(t *testing.T, on *rig) {
	ranks := on.num(3)
	cfg := ep.Config{NumExperts: 6, TopK: 2, Hidden: 8, MaxTokensPerRank: 4}
	x5 := comm.Of(make([]float32, 5*8), 8)
	ids5, w5 := comm.Of(make([]int32, 10), 2), comm.Of(make([]float32, 10), 2)
	two := func(b comm.Buffer) comm.Buffer { return b.Slice(0, 2) }
	for _, bad := range []struct {
		text string // of rank 1's error; the number 6 stands in NumTokens or in what a driver says of a count
		x    comm.Buffer
		r    ep.Routing
	}{
		{"dispatch: 5 tokens > MaxTokensPerRank 4", x5, ep.Routing{IDs: ids5, Weights: w5}},
		{"x is f32[2, 7]", two(x5).Columns(0, 7), ep.Routing{IDs: two(ids5), Weights: two(w5)}},
		{"ids is i32[5, 2]", two(x5), ep.Routing{IDs: ids5, Weights: two(w5)}},
		{"weights: no buffer", two(x5), ep.Routing{IDs: two(ids5)}},
		{"x is bf16[2, 8]", comm.Of(make([]dtype.BFloat16, 16), 8), ep.Routing{IDs: two(ids5), Weights: two(w5)}},
		{"6", x5, ep.Routing{IDs: ids5, Weights: w5, NumTokens: comm.Of([]int32{6}, 1)}},
		{"whole number of rows", comm.Of(make([]float32, 9), 8), ep.Routing{IDs: two(ids5), Weights: two(w5)}},
		{"must have no gaps", two(x5), ep.Routing{IDs: comm.Of(make([]int32, 6), 3).Columns(0, 2), Weights: two(w5)}},
	} {
		good := NewStep("good", cfg, 1, even(ranks, 3), distinct)
		err := on.world(t, ranks).Run(context.Background(), func(ctx context.Context, c *comm.Comm) error {
			x, err := on.create(ctx, c, cfg)
			if err != nil {
				return err
			}
			if c.Rank() == 1 {
				_, err = x.Dispatch(comm.Stream{}, bad.x, bad.r)
				if !isInvalid(err, bad.text) {
					return fmt.Errorf("%q: %v", bad.text, err)
				}
			} else if _, err = begin(ctx, c, x, good); !errors.Is(err, comm.Invalid) {
				return fmt.Errorf("rank %d after %q on rank 1: %v", c.Rank(), bad.text, err)
			}
			return run(ctx, c, x, good, options{})
		})
		require.NoError(t, err)
	}
}

// testConstruction: a configuration that is wrong or differs on one rank is an Invalid error on all.
func testConstruction(t *testing.T, on *rig) {
	good := ep.Config{NumExperts: 6, TopK: 2, Hidden: 8, MaxTokensPerRank: 4}
	wrong, other := good, good
	wrong.Alignment = -1
	other.MaxTokensPerRank = 5
	for _, bad := range []ep.Config{wrong, other} {
		err := on.world(t, on.num(3)).Run(context.Background(), func(ctx context.Context, c *comm.Comm) error {
			cfg := good
			if c.Rank() == c.Size()-1 {
				cfg = bad
			}
			if x, err := on.create(ctx, c, cfg); !errors.Is(err, comm.Invalid) || x != nil {
				return fmt.Errorf("rank %d: %v, %v", c.Rank(), x, err)
			}
			x, err := on.create(ctx, c, good)
			if err != nil {
				return err
			}
			return x.Close(ctx)
		})
		require.NoError(t, err)
	}
	require.NoError(t, on.world(t, on.num(1)).Run(context.Background(), func(ctx context.Context, c *comm.Comm) error {
		done, cancel := context.WithCancel(ctx)
		cancel()
		if _, err := on.create(done, c, good); !errors.Is(err, context.Canceled) {
			return fmt.Errorf("a finished ctx: %v", err)
		}
		return nil
	}))
}

// testGroup: in a group made by Split the errors name ranks of the world.
func testGroup(t *testing.T, on *rig) {
	if on.traits.Nodes > 0 {
		t.Skip("worlds of two levels have no groups")
	}
	cfg := ep.Config{NumExperts: 6, TopK: 2, Hidden: 8, MaxTokensPerRank: 4}
	blames := func(err error, rank int) error {
		if e := (*comm.Error)(nil); !errors.As(err, &e) || e.Code != comm.Invalid || e.Rank != rank || rank == 4 && e.Peer != 5 {
			return fmt.Errorf("on rank %d: %v", rank, err)
		}
		return nil
	}
	err := on.world(t, 6).Run(context.Background(), func(ctx context.Context, c *comm.Comm) error {
		g, err := c.Split(ctx, c.Rank()/3, -c.Rank()) // ranks 5, 4, 3 of the world are 0, 1, 2 of their group
		if err != nil || c.Rank() < 3 {
			return err
		}
		other := cfg
		if c.Rank() == 5 {
			other.Hidden = 7
		}
		if _, err := on.create(ctx, g, other); err == nil || !strings.Contains(err.Error(), "ranks 5 and 4") || blames(err, c.Rank()) != nil {
			return fmt.Errorf("configurations that differ: rank %d: %v", c.Rank(), err)
		}
		x, err := on.create(ctx, g, cfg)
		if err != nil {
			return err
		}
		n := 2
		if c.Rank() == 5 {
			n = 5
		}
		_, err = x.Dispatch(comm.Stream{}, comm.Of(make([]float32, n*8), 8),
			ep.Routing{IDs: comm.Of(make([]int32, n*2), 2), Weights: comm.Of(make([]float32, n*2), 2)})
		return blames(err, c.Rank())
	})
	require.NoError(t, err)
}

// testLate: a slow rank is waited for.
func testLate(t *testing.T, on *rig) {
	ranks := on.num(3)
	cfg := ep.Config{NumExperts: 6, TopK: 2, Hidden: 8, MaxTokensPerRank: 4}
	err := on.world(t, ranks).Run(context.Background(), func(ctx context.Context, c *comm.Comm) error {
		x, err := on.create(ctx, c, cfg)
		if err != nil {
			return err
		}
		for i := range uint64(3) {
			if c.Rank() == int(i)%ranks {
				time.Sleep(60 * time.Millisecond)
			}
			f, err := begin(ctx, c, x, NewStep("late", cfg, i, even(ranks, 4), distinct))
			if err != nil {
				return err
			}
			if c.Rank() == int(i+1)%ranks {
				time.Sleep(60 * time.Millisecond)
			}
			if err := f(); err != nil {
				return err
			}
		}
		return nil
	})
	require.NoError(t, err)
}

// testElsewhere: a rank that is in another call is an Invalid error on all that says so, and not a wait.
func testElsewhere(t *testing.T, on *rig) {
	if on.traits.Nodes > 0 {
		t.Skip("groups between and inside nodes notice different calls apart")
	}
	if on.traits.brief {
		t.Skip("the work between halves is a call of its own, which differs first, and on a GPU others are enqueued behind it")
	}
	defer exchange.Poison.Store(exchange.Poison.Swap(false)) // on a GPU it comes with a barrier, which would be the call that differs
	ranks := on.num(3)
	cfg := ep.Config{NumExperts: 6, TopK: 2, Hidden: 8, MaxTokensPerRank: 4}
	for _, n := range []int{2, 100_000} {
		errs := make([]error, ranks)
		start := time.Now()
		err := on.world(t, ranks).Run(context.Background(), func(ctx context.Context, c *comm.Comm) error {
			x, err := on.create(ctx, c, cfg)
			if err != nil {
				return err
			}
			if c.Rank() != 1 {
				_, errs[c.Rank()] = begin(ctx, c, x, NewStep("elsewhere", cfg, 1, even(ranks, 3), distinct))
				return nil
			}
			b, err := comm.Alloc(c, dtype.F32, 1, n)
			if err != nil {
				return err
			}
			errs[1] = errors.Join(c.AllReduce(comm.Stream{}, b, b, comm.Sum), c.Wait(ctx, comm.Stream{}))
			return comm.Free(c, b)
		})
		require.NoError(t, err)
		for rank, err := range errs {
			require.True(t, isInvalid(err, "ranks disagree: rank 0 calls"), "rank %d: %v", rank, err)
		}
		require.Less(t, time.Since(start), 10*time.Second)
	}
}

// testDying: when a rank panics, fails or leaves before or between the halves of an exchange, every other rank gets an
// error that names it, and nobody hangs.
func testDying(t *testing.T, on *rig) {
	patience.Try(t, 300*time.Millisecond, func(t testing.TB, wait time.Duration) { dying(t, on, wait) })
}

func dying(t testing.TB, on *rig, wait time.Duration) {
	ranks := on.num(4)
	dead := min(2, ranks-1)
	cfg := ep.Config{NumExperts: 8, TopK: 2, Hidden: 8, MaxTokensPerRank: 4}
	boom := errors.New("boom")
	for _, how := range []string{"panic before", "panic between", "error between", "silent before", "silent between"} {
		w := on.open(t, ranks, wait)
		var mu sync.Mutex
		var heard []error
		start := time.Now()
		err := w.Run(context.Background(), func(ctx context.Context, c *comm.Comm) error {
			x, err := on.create(ctx, c, cfg)
			if err != nil {
				return err
			}
			err = exchangeOnce(ctx, c, x, cfg, func(half string) error {
				if c.Rank() != dead || !strings.HasSuffix(how, half) {
					return nil
				}
				switch strings.Fields(how)[0] {
				case "panic":
					panic(boom)
				case "silent":
					<-w.Done()
				}
				return boom
			})
			if c.Rank() != dead {
				mu.Lock()
				heard = append(heard, err)
				mu.Unlock()
			}
			return err
		})
		require.Error(t, err, how)
		require.Less(t, time.Since(start), 20*time.Second, how)
		require.Len(t, heard, ranks-1, how)
		for _, e := range heard {
			require.ErrorContains(t, e, fmt.Sprintf("rank %d", dead), how)
			require.True(t, errors.Is(e, comm.Aborted) || errors.Is(e, comm.Timeout) || errors.Is(e, comm.Remote), "%s: %v", how, e)
		}
		_ = w.Close(context.Background())
	}
}

func exchangeOnce(ctx context.Context, c *comm.Comm, x ep.Exchanger, cfg ep.Config, at func(half string) error) error {
	s := NewStep("dying", cfg, 1, even(c.Size(), 4), distinct)
	if err := run(ctx, c, x, s, options{}); err != nil {
		return err
	}
	if err := at("before"); err != nil {
		return err
	}
	f, err := begin(ctx, c, x, s)
	if err != nil {
		return err
	}
	if err := at("between"); err != nil {
		return err
	}
	return f()
}
