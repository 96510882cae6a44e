package local

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/comm"
)

func TestSmoke(t *testing.T) {
	w, err := Open(Config{Ranks: 4, Timeout: time.Second})
	require.NoError(t, err)
	require.NoError(t, w.Run(context.Background(), func(ctx context.Context, c *comm.Comm) error {
		x := []float32{1, float32(c.Rank())}
		y := make([]float32, 2)
		require.NoError(t, c.AllReduce(comm.Stream{}, comm.Of(y, 2), comm.Of(x, 2), comm.Sum))
		require.Equal(t, []float32{4, 6}, y)
		own, all := []int32{int32(c.Rank())}, make([]int32, 4)
		src := make([]float32, c.Rank()*3)
		for i := range src {
			src[i] = float32(c.Rank())
		}
		dst := make([]float32, 12*3)
		require.NoError(t, c.AllGatherV(comm.Stream{}, comm.OnDevice(comm.Of(own, 1), comm.Of(all, 4), 3), comm.Part{Dst: comm.Of(dst, 3), Src: comm.Of(src, 3)}))
		require.Equal(t, []int32{0, 1, 2, 3}, all)
		require.Equal(t, float32(3), dst[17])
		sub, err := c.Split(ctx, c.Rank()%2, 0)
		require.NoError(t, err)
		require.Equal(t, c.Rank()/2, sub.Rank())
		return sub.Barrier(comm.Stream{})
	}))
}

func TestTimeout(t *testing.T) {
	w, err := Open(Config{Ranks: 2, Timeout: 50 * time.Millisecond})
	require.NoError(t, err)
	err = w.Run(context.Background(), func(ctx context.Context, c *comm.Comm) error {
		if c.Rank() == 1 {
			<-ctx.Done()
			return nil
		}
		return c.Barrier(comm.Stream{})
	})
	require.ErrorIs(t, err, comm.Timeout)
}
