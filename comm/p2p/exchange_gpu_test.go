package p2p_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/agrs"
	"github.com/weftgo/weft/alltoall"
	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/comm/commtest"
	"github.com/weftgo/weft/comm/local"
	"github.com/weftgo/weft/dtype"
	"github.com/weftgo/weft/ep"
	"github.com/weftgo/weft/internal/gputest"
	"github.com/weftgo/weft/internal/proctest"
)

const (
	moeTokens, moeHidden, moeExperts, moeTopK = 12, 64, 8, 3
)

// layer sends a rank's tokens through experts that multiply by their number, and returns what comes back.
func layer(ctx context.Context, tb testing.TB, c *comm.Comm, x ep.Exchanger) []float32 {
	s, rng := comm.Stream{}, rand.New(rand.NewPCG(5, uint64(c.Rank())))
	numTokens := moeTokens - 5*(c.Rank()%3) // ragged
	rows := make([]float32, numTokens*moeHidden)
	for i := range rows {
		rows[i] = float32(rng.NormFloat64())
	}
	var ids []int32
	var weights []float32
	for range numTokens {
		for _, e := range rng.Perm(moeExperts)[:moeTopK] {
			ids, weights = append(ids, int32(e)), append(weights, rng.Float32())
		}
	}
	r, err := x.Dispatch(s, put(tb, c, rows, moeHidden), ep.Routing{IDs: put(tb, c, ids, moeTopK), Weights: put(tb, c, weights, moeTopK)})
	require.NoError(tb, err)
	for e, slot := range r.Experts(ctx) {
		n := slot[1] - slot[0]
		if n == 0 {
			continue
		}
		y := take(tb, c, r.X.Slice(slot[0], slot[1]))
		for i := range y {
			y[i] *= float32(x.Config().Placement.LogicalOf(c.Rank(), e)) + 0.3
		}
		require.NoError(tb, comm.Copy(c, s, r.Y.Slice(slot[0], slot[1]), comm.Of(y, moeHidden)))
	}
	out := put(tb, c, make([]float32, len(rows)), moeHidden)
	require.NoError(tb, x.Combine(s, out, r.Y, r))
	require.NoError(tb, c.Wait(ctx, s))
	return take(tb, c, out)
}

func put[T dtype.Element](tb testing.TB, c *comm.Comm, x []T, cols int) comm.Buffer {
	b, err := comm.Alloc(c, comm.Of(x, cols).DType(), len(x)/cols, cols)
	require.NoError(tb, err)
	require.NoError(tb, comm.Copy(c, comm.Stream{}, b, comm.Of(x, cols)))
	return b
}

func take(tb testing.TB, c *comm.Comm, b comm.Buffer) []float32 {
	x := make([]float32, b.Rows()*b.Cols())
	require.NoError(tb, comm.Copy(c, comm.Stream{}, comm.Of(x, b.Cols()), b))
	require.NoError(tb, c.Wait(tb.Context(), comm.Stream{}))
	return x
}

// outputs runs the layer on the local ranks of a world, with both exchangers.
func outputs(t *testing.T, w *comm.World) map[string][]float32 {
	all := map[string][]float32{}
	cfg := ep.Config{NumExperts: moeExperts, TopK: moeTopK, Hidden: moeHidden, MaxTokensPerRank: moeTokens, DType: dtype.F32, Layout: ep.Expanded}
	for _, name := range []string{"alltoall", "agrs"} {
		got := make([][]float32, w.Size())
		commtest.Run(t, w, func(ctx context.Context, tb testing.TB, c *comm.Comm) {
			var x ep.Exchanger
			var err error
			if name == "agrs" {
				x, err = agrs.New(ctx, c, cfg)
			} else {
				x, err = alltoall.New(ctx, c, cfg)
			}
			require.NoError(tb, err)
			got[c.Rank()] = layer(ctx, tb, c, x)
			require.NoError(tb, x.Close(ctx))
		})
		for rank, x := range got {
			if x != nil {
				all[name+string(rune('0'+rank))] = x
			}
		}
	}
	return all
}

// TestIPCExchange runs dispatch and combine over two processes of two ranks, with the bits of the CPU.
func TestIPCExchange(t *testing.T) {
	if !proctest.Child() {
		gputest.Device(t)
	}
	store, r := proctest.Run(t, proctest.Config{Processes: 2, Timeout: 180 * time.Second})
	if r != nil {
		report(t, r)
		return
	}
	gputest.Device(t)
	w := openSpan(t, store, 2, 20*time.Second, nil)
	cpu, err := local.Open(local.Config{Ranks: w.Size()})
	require.NoError(t, err)
	want := outputs(t, cpu)
	require.NoError(t, cpu.Close(t.Context()))
	got := outputs(t, w)
	require.Len(t, got, 4)
	for name, x := range got {
		require.Equal(t, want[name], x, name)
	}
	t.Log("measured: dispatch and combine of alltoall and agrs equal comm/local's bits")
	require.NoError(t, w.Close(t.Context()))
}
