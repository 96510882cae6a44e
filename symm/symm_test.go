package symm_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/comm/commtest"
	"github.com/weftgo/weft/comm/local"
	"github.com/weftgo/weft/dtype"
	"github.com/weftgo/weft/symm"
)

func open(t testing.TB, ranks int) *comm.World {
	w, err := local.Open(local.Config{Ranks: ranks})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.Close(context.Background())) })
	return w
}

// TestHostRegion writes to every peer's memory and reads what the peers wrote.
func TestHostRegion(t *testing.T) {
	for _, ranks := range []int{1, 2, 5} {
		w := open(t, ranks)
		commtest.Run(t, w, func(ctx context.Context, tb testing.TB, c *comm.Comm) {
			for range 3 {
				r, err := symm.Alloc(ctx, c, 8*ranks+1)
				require.NoError(tb, err)
				require.Equal(tb, 8*ranks+1, r.Bytes())
				for peer := range ranks {
					require.Zero(tb, r.Addr(peer)%symm.Align)
					mine := r.At(peer, 8*c.Rank(), dtype.I64, 1, 1)
					require.Equal(tb, r.Addr(peer)+uintptr(8*c.Rank()), mine.Addr())
					view, err := comm.View[int64](mine)
					require.NoError(tb, err)
					require.Zero(tb, view[0], "zeroed")
					view[0] = int64(100*c.Rank() + peer)
				}
				require.NoError(tb, c.Barrier(comm.Stream{}))
				got, err := comm.View[int64](r.At(c.Rank(), 0, dtype.I64, ranks, 1))
				require.NoError(tb, err)
				for peer, v := range got {
					require.EqualValues(tb, 100*peer+c.Rank(), v)
				}
				require.NoError(tb, r.Close(ctx))
				require.NoError(tb, r.Close(ctx), "again")
			}
		})
	}
}

// TestCollectiveInRegion gives a collective buffers of a Region, of every type.
func TestCollectiveInRegion(t *testing.T) {
	w := open(t, 3)
	commtest.Run(t, w, func(ctx context.Context, tb testing.TB, c *comm.Comm) {
		r, err := symm.Alloc(ctx, c, 4096)
		require.NoError(tb, err)
		for i, typ := range dtype.All() {
			b := r.At(c.Rank(), 64*i, typ, 2, 3)
			require.NoError(tb, c.AllReduce(comm.Stream{}, b, b, comm.Sum))
		}
	})
}

func TestErrors(t *testing.T) {
	w := open(t, 2)
	commtest.Run(t, w, func(ctx context.Context, tb testing.TB, c *comm.Comm) {
		_, err := symm.Alloc(ctx, c, 0)
		require.ErrorIs(tb, err, comm.Invalid)
		_, err = symm.Alloc(ctx, c, 16*(1+c.Rank()))
		require.ErrorIs(tb, err, comm.Invalid)
		require.ErrorContains(tb, err, "rank 0 wants 16 bytes, rank 1 wants 32")
		r, err := symm.Alloc(ctx, c, 64)
		require.NoError(tb, err)
		for _, at := range []struct{ rank, offset, rows, cols int }{{2, 0, 1, 1}, {-1, 0, 1, 1}, {0, 2, 1, 1}, {0, 0, 17, 1}, {0, 64, 1, 1}, {0, -4, 1, 1}, {0, 0, 1, 0}} {
			require.Panics(tb, func() { r.At(at.rank, at.offset, dtype.F32, at.rows, at.cols) }, "%+v", at)
		}
		require.NotPanics(tb, func() { r.At(1, 64, dtype.F32, 0, 1) })
	})
}

func Example() {
	w, _ := local.Open(local.Config{Ranks: 2})
	_ = w.Run(context.Background(), func(ctx context.Context, c *comm.Comm) error {
		r, err := symm.Alloc(ctx, c, 4)
		if err != nil {
			return err
		}
		peer, _ := comm.View[int32](r.At(1-c.Rank(), 0, dtype.I32, 1, 1))
		peer[0] = int32(c.Rank() + 10) // written straight into the other rank's memory
		if err := c.Barrier(comm.Stream{}); err != nil {
			return err
		}
		if c.Rank() == 0 {
			mine, _ := comm.View[int32](r.At(0, 0, dtype.I32, 1, 1))
			fmt.Println("rank 0 received", mine[0])
		}
		return r.Close(ctx)
	})
	// Output: rank 0 received 11
}
