package eptest_test

import (
	"context"
	"errors"
	"math/rand/v2"

	"github.com/weftgo/weft/alltoall"
	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/cuda"
	"github.com/weftgo/weft/dtype"
	"github.com/weftgo/weft/ep"
)

// problem is one rank's inputs.
type problem struct {
	x          *alltoall.Exchange
	in, ids, w comm.Buffer
	out        comm.Buffer
	copies     float64
	stream     *cuda.Stream
	s          comm.Stream
}

func (x *timer) problem(ctx context.Context, c *comm.Comm, cfg ep.Config) (*problem, error) {
	p := &problem{}
	var err error
	if p.x, err = alltoall.New(ctx, c, cfg); err != nil {
		return nil, err
	}
	n := cfg.MaxTokensPerRank
	rng := rand.New(rand.NewPCG(1, uint64(c.Rank())))
	ids, weights := make([]int32, n*timedTopK), make([]float32, n*timedTopK)
	for t := range n {
		ranks := map[int32]bool{}
		for k, e := range rng.Perm(timedExperts)[:timedTopK] {
			ids[t*timedTopK+k], weights[t*timedTopK+k] = int32(e), rng.Float32()
			ranks[int32(e)/(timedExperts/timedRanks)] = true
		}
		p.copies += float64(len(ranks)) / float64(n)
	}
	for _, v := range []struct {
		to   *comm.Buffer
		t    dtype.DType
		cols int
	}{{&p.in, dtype.BF16, cfg.Hidden}, {&p.out, dtype.BF16, cfg.Hidden}, {&p.ids, dtype.I32, timedTopK}, {&p.w, dtype.F32, timedTopK}} {
		if *v.to, err = comm.Alloc(c, v.t, n, v.cols); err != nil {
			return nil, err
		}
	}
	if p.stream, err = x.dev.NewStream(0); err != nil {
		return nil, err
	}
	p.s = comm.Stream{Handle: p.stream.Handle()}
	err = errors.Join(comm.Copy(c, comm.Stream{}, p.ids, comm.Of(ids, timedTopK)), comm.Copy(c, comm.Stream{}, p.w, comm.Of(weights, timedTopK)),
		x.filled(p.stream, p.in), p.stream.Wait(ctx))
	return p, err
}

func (p *problem) free(ctx context.Context, c *comm.Comm) error {
	return errors.Join(c.Wait(ctx, p.s), p.x.Close(ctx), comm.Free(c, p.in), comm.Free(c, p.out), comm.Free(c, p.ids), comm.Free(c, p.w), p.stream.Close())
}
