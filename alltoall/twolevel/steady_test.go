package twolevel_test

import (
	"context"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/alltoall"
	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/comm/local"
	"github.com/weftgo/weft/dtype"
	"github.com/weftgo/weft/ep"
)

// steady runs a job's dispatches and combines n times on every rank, without experts, and returns the allocations of all ranks.
func (j job) steady(t testing.TB, w *comm.World, n int, create func(ctx context.Context, c *comm.Comm, cfg ep.Config) (ep.Exchanger, error)) uint64 {
	var before, after runtime.MemStats
	require.NoError(t, w.Run(context.Background(), func(ctx context.Context, c *comm.Comm) error {
		x, err := create(ctx, c, j.cfg)
		if err != nil {
			return err
		}
		rank, h, k := c.Rank(), j.cfg.Hidden, j.cfg.TopK
		in, out := buffer(j.x[rank], h, j.cfg.DType), buffer(j.x[rank], h, j.cfg.DType)
		route := ep.Routing{IDs: comm.Of(j.ids[rank], k), Weights: comm.Of(j.weights[rank], k)}
		for i := range n + 10 {
			if i == 10 && rank == 0 {
				runtime.ReadMemStats(&before)
			}
			r, err := x.Dispatch(comm.Stream{}, in, route)
			if err != nil {
				return err
			}
			if err := x.Combine(comm.Stream{}, out, r.Y, r); err != nil {
				return err
			}
		}
		if rank == 0 {
			runtime.ReadMemStats(&after)
		}
		return x.Close(ctx)
	}))
	require.NoError(t, w.Close(context.Background()))
	return after.Mallocs - before.Mallocs
}

// After the largest batch a step allocates one small object on each rank; 1.0 to 1.2 were measured, the runtime's own among them.
func TestSteady(t *testing.T) {
	if testing.Short() {
		t.Skip("counts allocations; not with -short, which CI runs under the race detector")
	}
	const n = 200
	j := newJob(ep.Config{NumExperts: 11, TopK: 4, Hidden: 64, DType: dtype.BF16}, 1, 0, 20, 3, 0, 12)
	per := float64(j.steady(t, open(t, 2, 2, 0), n, create)) / n / 4
	t.Logf("%.1f allocations a step and rank", per)
	require.Less(t, per, 1.5)
}

// BenchmarkExchange is a dispatch and a combine of 256 tokens on each of 8 ranks that share this machine: what the second level costs
// where there is no network.
func BenchmarkExchange(b *testing.B) {
	tokens := []int{256, 256, 256, 256, 256, 256, 256, 256}
	j := newJob(ep.Config{NumExperts: 64, TopK: 8, Hidden: 1024, DType: dtype.BF16, Output: ep.PartialRows}, 1, 0, tokens...)
	b.Run("one node", func(b *testing.B) {
		w, err := local.Open(local.Config{Ranks: 8})
		require.NoError(b, err)
		j.steady(b, w, b.N, func(ctx context.Context, c *comm.Comm, cfg ep.Config) (ep.Exchanger, error) {
			return alltoall.New(ctx, c, cfg)
		})
	})
	b.Run("2 nodes", func(b *testing.B) { j.steady(b, open(b, 2, 4, 0), b.N, create) })
	b.Run("4 nodes", func(b *testing.B) { j.steady(b, open(b, 4, 2, 0), b.N, create) })
}
