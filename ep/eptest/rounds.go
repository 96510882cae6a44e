package eptest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/ep"
)

// TestRounds exchanges again and again while ranks come at random times, and looks at the sums only now and then, so that on a GPU
// many calls are under way: a flag of another round or a row written too early shows as a wrong sum. Some results are released
// instead of combined, some live while another is made. Experts are a copy: a token's sum is itself times the ranks it went
// to. 1,000 rounds with WEFT_SOAK set, else 60. WEFT_KERNEL_DELAYS=1 adds random times before every store of a kernel.
func TestRounds(t *testing.T, create New, open Open) {
	rounds := 60
	if os.Getenv("WEFT_SOAK") != "" {
		rounds = 1000
	}
	const ranks = 5
	w := open(t, ranks, time.Minute)
	require.NoError(t, w.Run(context.Background(), func(ctx context.Context, c *comm.Comm) error {
		x, err := create(ctx, c, ep.Config{NumExperts: 7, TopK: 3, Hidden: 72, MaxTokensPerRank: 24, Output: ep.PartialRows, Banks: 2})
		if err != nil {
			return err
		}
		r := &roundsOf{c: c, x: x, own: rand.New(rand.NewPCG(3, uint64(c.Rank()))), shared: rand.New(rand.NewPCG(4, 4))}
		err = r.prepare()
		for i := 0; i < rounds && err == nil; i++ {
			if err = r.round(); err == nil && (i%7 == 6 || i == rounds-1) {
				err = r.check(ctx)
			}
			if err != nil {
				err = fmt.Errorf("rank %d, round %d: %w", c.Rank(), i, err)
			}
		}
		for _, b := range r.used {
			err = errors.Join(err, comm.Free(c, b))
		}
		return errors.Join(err, x.Close(ctx))
	}))
	require.NoError(t, w.Close(context.Background()))
}

// roundsOf is one rank's.
type roundsOf struct {
	c           *comm.Comm
	x           ep.Exchanger
	own, shared *rand.Rand // the second gives the same on all ranks
	used        []comm.Buffer
	kinds       [5]roundKind
	due         []roundOut
	outs        []comm.Buffer
}

// roundKind is one of the inputs of a rank, on its device.
type roundKind struct {
	x  comm.Buffer
	r  ep.Routing
	to []float32 // what comes of it
}

type roundOut struct {
	out  comm.Buffer
	want []float32
}

func (r *roundsOf) prepare() error {
	cfg := r.x.Config()
	most := cfg.MaxTokensPerRank
	var err error
	up := func(b comm.Buffer) comm.Buffer {
		d, e := comm.Alloc(r.c, b.DType(), b.Rows(), b.Cols())
		r.used = append(r.used, d)
		err = errors.Join(err, e)
		if e == nil {
			err = errors.Join(err, comm.Copy(r.c, comm.Stream{}, d, b))
		}
		return d
	}
	for k := range r.kinds {
		tokens := make([]int, r.c.Size())
		for i := range tokens {
			tokens[i] = []int{most, 0, 1, 3 + i, most - i}[(k+i)%5]
		}
		if k == 4 {
			clear(tokens)
		}
		s := NewStep("rounds", cfg, uint64(k), tokens, dirty)
		me, n := r.c.Rank(), tokens[r.c.Rank()]
		kind := &r.kinds[k]
		in := append(s.Tokens[me], make([]float32, (most-n)*cfg.Hidden)...)
		ids, weights := append(s.IDs[me], make([]int32, (most-n)*cfg.TopK)...), append(s.Weight[me], make([]float32, (most-n)*cfg.TopK)...)
		kind.x = up(comm.Of(in, cfg.Hidden))
		kind.r = ep.Routing{IDs: up(comm.Of(ids, cfg.TopK)), Weights: up(comm.Of(weights, cfg.TopK)), NumTokens: up(comm.Of([]int32{int32(n)}, 1))}
		for t := range n {
			to := map[int]bool{}
			for _, e := range s.IDs[me][t*cfg.TopK : (t+1)*cfg.TopK] {
				if e >= 0 && int(e) < cfg.NumExperts {
					rank, _ := home(cfg, r.c.Size(), me, t, int(e))
					to[rank] = true
				}
			}
			for _, v := range s.Tokens[me][t*cfg.Hidden : (t+1)*cfg.Hidden] {
				kind.to = append(kind.to, v*float32(len(to)))
			}
		}
	}
	for range 16 {
		r.outs = append(r.outs, up(comm.Of(make([]float32, most*cfg.Hidden), cfg.Hidden)))
	}
	return err
}

// late sleeps now and then.
func (r *roundsOf) late() {
	if r.own.IntN(6) == 0 {
		time.Sleep(time.Duration(r.own.IntN(400)) * time.Microsecond)
	}
}

func (r *roundsOf) dispatch() (*ep.Received, *roundKind, error) {
	r.late()
	kind := &r.kinds[r.shared.IntN(len(r.kinds))]
	got, err := r.x.Dispatch(comm.Stream{}, kind.x, kind.r)
	if err == nil && got.X.Rows() > 0 {
		err = comm.Copy(r.c, comm.Stream{}, got.Y, got.X)
	}
	return got, kind, err
}

func (r *roundsOf) combine(got *ep.Received, kind *roundKind) error {
	r.late()
	out := r.outs[len(r.due)]
	r.due = append(r.due, roundOut{out, kind.to})
	return r.x.Combine(comm.Stream{}, out, got.Y, got)
}

// round is a dispatch and a combine, or a result given up, or two that overlap.
func (r *roundsOf) round() error {
	a, kindA, err := r.dispatch()
	if err != nil {
		return err
	}
	how := r.shared.IntN(6)
	if how == 0 {
		a.Release()
		return nil
	}
	if how > 2 {
		return r.combine(a, kindA)
	}
	b, kindB, err := r.dispatch()
	if err != nil {
		return err
	}
	if how == 1 {
		return errors.Join(r.combine(b, kindB), r.combine(a, kindA))
	}
	a.Release()
	return r.combine(b, kindB)
}

// check waits and compares what came.
func (r *roundsOf) check(ctx context.Context) error {
	if err := r.c.Wait(ctx, comm.Stream{}); err != nil {
		return err
	}
	cols := r.x.Config().Hidden
	for i, d := range r.due {
		if len(d.want) == 0 {
			continue
		}
		got := make([]float32, len(d.want))
		if err := comm.Copy(r.c, comm.Stream{}, comm.Of(got, cols), d.out.Slice(0, len(got)/cols)); err != nil {
			return err
		}
		for j := range got {
			if got[j] != d.want[j] {
				return fmt.Errorf("combine %d since the last look: token %d column %d is %v, want %v", i, j/cols, j%cols, got[j], d.want[j])
			}
		}
	}
	r.due = r.due[:0]
	return nil
}
