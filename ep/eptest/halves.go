package eptest

import (
	"context"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/ep"
)

// testHalves calls the halves by hand: in and out of order, mixed with whole calls, and given up.
func testHalves(t *testing.T, on *rig) {
	ranks := on.num(3)
	cfg := ep.Config{NumExperts: 6, TopK: 2, Hidden: 24, MaxTokensPerRank: 5}
	for name, test := range map[string]func(ctx context.Context, c *comm.Comm, x ep.Exchanger) error{
		"out of order": outOfOrder, "mixed": mixedCalls, "given up": givenUp, "refused": refusedHalves,
	} {
		t.Run(name, func(t *testing.T) {
			err := on.world(t, ranks).Run(context.Background(), func(ctx context.Context, c *comm.Comm) error {
				x, err := on.create(ctx, c, cfg)
				if err != nil {
					return err
				}
				for range 3 {
					if err := test(ctx, c, x); err != nil {
						return fmt.Errorf("rank %d: %w", c.Rank(), err)
					}
				}
				return x.Close(ctx)
			})
			require.NoError(t, err)
		})
	}
	t.Run("two banks", func(t *testing.T) {
		cfg := cfg
		cfg.Banks = 2
		require.NoError(t, on.world(t, ranks).Run(context.Background(), func(ctx context.Context, c *comm.Comm) error {
			x, err := on.create(ctx, c, cfg)
			if err != nil {
				return err
			}
			for i := range uint64(4) {
				if err := overlapping(ctx, c, x, i); err != nil {
					return fmt.Errorf("rank %d: %w", c.Rank(), err)
				}
			}
			return x.Close(ctx)
		}))
	})
}

// job is a step of one rank in halves.
type job struct {
	c   *comm.Comm
	x   ep.Exchanger
	two ep.Splitter
	s   Step
	r   *ep.Received
}

func newJob(c *comm.Comm, x ep.Exchanger, seed uint64) *job {
	cfg := x.Config()
	return &job{c: c, x: x, two: x.(ep.Splitter), s: NewStep("halves", cfg, seed, repeat(c.Size(), cfg.MaxTokensPerRank, 0, 3), dirty)}
}

// send begins the dispatch, and overwrites what it was given.
func (j *job) send() (err error) {
	cfg, me := j.x.Config(), j.c.Rank()
	x, ids, w := slices.Clone(j.s.Tokens[me]), slices.Clone(j.s.IDs[me]), slices.Clone(j.s.Weight[me])
	j.r, err = j.two.DispatchSend(comm.Stream{}, comm.Of(x, cfg.Hidden), ep.Routing{IDs: comm.Of(ids, cfg.TopK), Weights: comm.Of(w, cfg.TopK)})
	for i := range x {
		x[i] = float32(math.NaN())
	}
	for i := range ids {
		ids[i], w[i] = 77, float32(math.NaN())
	}
	return err
}

func (j *job) recv(ctx context.Context) error {
	if err := j.two.DispatchRecv(comm.Stream{}, j.r); err != nil {
		return err
	}
	cfg := j.x.Config()
	v := viewOf(cfg, j.s, j.c.Rank(), false)
	if err := v.compare(cfg, j.s, j.r); err != nil {
		return err
	}
	experts(ctx, cfg, j.r, j.r.Y, v.experts)
	return nil
}

// back begins the combine, and overwrites what it was given.
func (j *job) back() error {
	y := j.r.Y
	if err := j.two.CombineSend(comm.Stream{}, y, j.r); err != nil {
		return err
	}
	for i := range y.Rows() {
		for k, row := 0, y.RowBytes(i); k < len(row); k++ {
			row[k] = 0xff
		}
	}
	return nil
}

func (j *job) end() error {
	cfg, me := j.x.Config(), j.c.Rank()
	out := make([]float32, len(j.s.Tokens[me]))
	if err := j.two.CombineRecv(comm.Stream{}, comm.Of(out, cfg.Hidden), j.r); err != nil {
		return err
	}
	for i, want := range outOf(cfg, j.s, me, 0) {
		if float64(out[i]) != want {
			return fmt.Errorf("value %d is %v, want %v", i, out[i], want)
		}
	}
	return nil
}

// outOfOrder makes every call that is wrong at its point, each of which must change nothing.
func outOfOrder(ctx context.Context, c *comm.Comm, x ep.Exchanger) error {
	j := newJob(c, x, 5)
	cfg, me := x.Config(), c.Rank()
	out := comm.Of(make([]float32, len(j.s.Tokens[me])), cfg.Hidden)
	y := comm.Of(make([]float32, cfg.Hidden), cfg.Hidden)
	wrong := func(what string, err error, text string) error {
		if !isInvalid(err, text) {
			return fmt.Errorf("%s: %v", what, err)
		}
		return nil
	}
	if err := wrong("DispatchRecv of no result", j.two.DispatchRecv(comm.Stream{}, &ep.Received{}), "not of this exchanger"); err != nil {
		return err
	}
	for _, do := range []func() error{
		j.send,
		func() error {
			second := newJob(c, x, 6)
			return wrong("a second DispatchSend", second.send(), "all 1 banks hold results")
		},
		func() error {
			return wrong("Combine", x.Combine(comm.Stream{}, out, y, j.r), "call DispatchRecv first")
		},
		func() error {
			return wrong("CombineSend", j.two.CombineSend(comm.Stream{}, y, j.r), "call DispatchRecv first")
		},
		func() error {
			return wrong("CombineRecv", j.two.CombineRecv(comm.Stream{}, out, j.r), "call DispatchRecv first")
		},
		func() error { return j.recv(ctx) },
		func() error {
			return wrong("a second DispatchRecv", j.two.DispatchRecv(comm.Stream{}, j.r), "was received before")
		},
		func() error {
			return wrong("CombineRecv alone", j.two.CombineRecv(comm.Stream{}, out, j.r), "that CombineSend has not taken")
		},
		func() error {
			return wrong("CombineSend of another shape", j.two.CombineSend(comm.Stream{}, comm.Of(make([]float32, 7), 7), j.r), ", 7]")
		},
		j.back,
		func() error {
			return wrong("a second CombineSend", j.two.CombineSend(comm.Stream{}, j.r.Y, j.r), "CombineRecv is what follows")
		},
		func() error {
			return wrong("Combine", x.Combine(comm.Stream{}, out, j.r.Y, j.r), "CombineRecv is what follows")
		},
		func() error {
			return wrong("CombineRecv of another shape", j.two.CombineRecv(comm.Stream{}, comm.Of(make([]float32, 7), 7), j.r), "out is f32[1, 7]")
		},
		j.end,
		func() error {
			return wrong("a second CombineRecv", j.two.CombineRecv(comm.Stream{}, out, j.r), "was taken")
		},
	} {
		if err := do(); err != nil {
			return err
		}
	}
	return nil
}

// mixedCalls lets some ranks make whole calls, and others halves.
func mixedCalls(ctx context.Context, c *comm.Comm, x ep.Exchanger) error {
	for round := range 4 {
		j := newJob(c, x, uint64(round))
		if (c.Rank()+round)%2 == 0 {
			if err := run(ctx, c, wholeOf(x), j.s, options{}); err != nil {
				return err
			}
			continue
		}
		for _, do := range []func() error{j.send, func() error { return j.recv(ctx) }, j.back, j.end} {
			if err := do(); err != nil {
				return err
			}
		}
	}
	return nil
}

// wholeOf is the exchanger whose Dispatch is one call, without work between halves that only some ranks would do.
func wholeOf(x ep.Exchanger) ep.Exchanger {
	switch v := x.(type) {
	case *inHalves:
		return v.Exchanger
	case *remote:
		return &remote{Exchanger: wholeOf(v.Exchanger), c: v.c}
	}
	return x
}

// givenUp releases results at every point, then does a whole step.
func givenUp(ctx context.Context, c *comm.Comm, x ep.Exchanger) error {
	for stop := range 4 {
		j := newJob(c, x, uint64(stop))
		for i, do := range []func() error{j.send, func() error { return j.recv(ctx) }, j.back} {
			if i < stop {
				if err := do(); err != nil {
					return fmt.Errorf("stop %d: %w", stop, err)
				}
			}
		}
		if stop > 0 {
			j.r.Release()
			j.r.Release()
			if err := j.two.DispatchRecv(comm.Stream{}, j.r); !isInvalid(err, "was taken") {
				return fmt.Errorf("DispatchRecv of a released result: %v", err)
			}
		}
		if err := run(ctx, c, x, j.s, options{}); err != nil {
			return fmt.Errorf("after stop %d: %w", stop, err)
		}
	}
	return nil
}

// refusedHalves: a DispatchSend that is wrong on one rank is an error of DispatchRecv on all.
func refusedHalves(ctx context.Context, c *comm.Comm, x ep.Exchanger) error {
	cfg := x.Config()
	j := newJob(c, x, 3)
	var err error
	if c.Rank() == 1 {
		n := cfg.MaxTokensPerRank + 1
		j.r, err = j.two.DispatchSend(comm.Stream{}, comm.Of(make([]float32, n*cfg.Hidden), cfg.Hidden),
			ep.Routing{IDs: comm.Of(make([]int32, n*cfg.TopK), cfg.TopK), Weights: comm.Of(make([]float32, n*cfg.TopK), cfg.TopK)})
	} else {
		err = j.send()
	}
	if err != nil {
		return err
	}
	text := "rank 1 refused its call"
	if c.Rank() == 1 {
		text = "6 tokens > MaxTokensPerRank 5"
	}
	if err := j.two.DispatchRecv(comm.Stream{}, j.r); !isInvalid(err, text) {
		return fmt.Errorf("DispatchRecv after a wrong DispatchSend on rank 1: %v", err)
	}
	return run(ctx, c, x, j.s, options{})
}

// overlapping holds two results at once, each in halves that interleave.
func overlapping(ctx context.Context, c *comm.Comm, x ep.Exchanger, seed uint64) error {
	a, b := newJob(c, x, 2*seed), newJob(c, x, 2*seed+1)
	for i, do := range []func() error{a.send, b.send, func() error { return a.recv(ctx) }, a.back, func() error { return b.recv(ctx) }, b.back, a.end, b.end} {
		if err := do(); err != nil {
			return fmt.Errorf("call %d: %w", i, err)
		}
	}
	return nil
}
