package p2p

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/comm/commtest"
	"github.com/weftgo/weft/dtype"
	"github.com/weftgo/weft/internal/cublaslt"
	"github.com/weftgo/weft/internal/gputest"
	retry "github.com/weftgo/weft/internal/patience"
)

// whileSevenWait lets ranks 0 to 6 wait in a kernel for rank 7, which calls do and then comes. None of what do does may wait
// for those kernels: nobody gets a Timeout, and do ends long before one.
func whileSevenWait(t *testing.T, do func(ctx context.Context, tb testing.TB, c, alone *comm.Comm)) {
	retry.Try(t, 6*time.Second, func(t testing.TB, timeout time.Duration) { sevenWait(t, timeout, do) })
}

func sevenWait(t testing.TB, timeout time.Duration, do func(ctx context.Context, tb testing.TB, c, alone *comm.Comm)) {
	w := openWorld(t, 8, timeout)
	commtest.Run(t, w, func(ctx context.Context, tb testing.TB, c *comm.Comm) {
		alone, err := c.Split(ctx, c.Rank()/7, 0) // rank 7 is a group of its own
		require.NoError(tb, err)
		if c.Rank() == 7 {
			time.Sleep(timeout / 120)
			for _, r := range c.Conn().(*conn).g.members[:7] {
				done, err := r.streams.Own.Query()
				require.NoError(tb, err)
				require.False(tb, done, "rank %d waits", r.index)
			}
			start := time.Now()
			do(ctx, tb, c, alone)
			took := time.Since(start)
			tb.Logf("RESULT while seven ranks wait: %v in %v", t.Name(), took.Round(10*time.Microsecond))
			require.Less(tb, took, timeout/2)
		}
		require.NoError(tb, c.Barrier(comm.Stream{}))
		require.NoError(tb, c.Wait(ctx, comm.Stream{}))
	})
}

// TestFirstUseOfKernels uses every kernel for the first time while seven ranks wait: each operation, for common and rare types,
// small and large, with counts on the host and on the device.
func TestFirstUseOfKernels(t *testing.T) {
	whileSevenWait(t, func(ctx context.Context, tb testing.TB, _, c *comm.Comm) {
		wait := func() { require.NoError(tb, c.Wait(ctx, comm.Stream{})) }
		for _, typ := range dtype.All() {
			for _, cols := range []int{64, 100_000, 2 << 20} { // one block, several, bulk copies
				a, b := must(tb, c, typ, 4, cols), must(tb, c, typ, 4, cols)
				own, all := must(tb, c, dtype.I32, 1, 1), must(tb, c, dtype.I32, 1, 1)
				s, n := comm.Stream{}, comm.Host([]int{3})
				part := comm.Part{Dst: b, Src: a}
				require.NoError(tb, errors.Join(
					c.AllReduce(s, b, a, comm.Sum), c.AllReduce(s, b, a, comm.Max), c.AllReduce(s, b.Slice(0, 1), a.Slice(1, 2), comm.Prod),
					c.AllGather(s, b, a), c.ReduceScatter(s, b, a, comm.Min), c.Broadcast(s, b, 0), c.Reduce(s, b, a, comm.Sum, 0),
					c.AllGatherV(s, n, part), c.ReduceScatterV(s, n, comm.Sum, part), c.AllToAllV(s, n, n, part),
					c.AllGatherV(s, comm.OnDevice(own, all, 4), part), c.Barrier(s),
					comm.Copy(c, s, b.Columns(1, 33), a.Columns(0, 32)),
				), "%v", typ)
				wait()
				for _, x := range []comm.Buffer{a, b, own, all} {
					require.NoError(tb, comm.Free(c, x))
				}
			}
		}
	})
}

// TestFreeWhileRanksWait gives back memory and code of every kind while seven ranks wait.
func TestFreeWhileRanksWait(t *testing.T) {
	memoryComesBack(t)
	d := device(t)
	mine, err := d.Alloc(8 << 20)
	require.NoError(t, err)
	pinned, err := d.AllocHost(1 << 20)
	require.NoError(t, err)
	t.Run("free", func(t *testing.T) {
		whileSevenWait(t, func(ctx context.Context, tb testing.TB, c, _ *comm.Comm) {
			b := must(tb, c, dtype.F32, 1000, 1000)
			large := must(tb, c, dtype.F32, 100_000, 1000) // beyond the arena
			require.NoError(tb, errors.Join(comm.Free(c, b), comm.Free(c, large), d.Free(mine), pinned.Close()))
			require.Equal(tb, 2, d.PutOff())
		})
	})
	require.Zero(t, d.PutOff(), "given back when the world closed")
}

// TestFreshProduct multiplies matrices while seven ranks wait: a bucket of sizes that was warmed runs at once, and a shape that
// was not is refused at once, because loading its code would wait for the ranks.
func TestFreshProduct(t *testing.T) {
	d := device(t)
	gputest.NeedHardware(t, "libcublasLt does not run on an emulated one")
	gputest.Library(t, cublaslt.Init())
	s, err := d.NewStream(0)
	require.NoError(t, err)
	h, err := cublaslt.New(d, 0)
	require.NoError(t, err)
	warm := cublaslt.Problem{M: 200, N: 256, K: 128, TransB: true, Type: dtype.BF16, Out: dtype.BF16}
	require.NoError(t, h.Warm(s, warm))
	at, err := d.Alloc(4 << 20)
	require.NoError(t, err)
	t.Run("world", func(t *testing.T) {
		whileSevenWait(t, func(ctx context.Context, tb testing.TB, _, _ *comm.Comm) {
			for _, m := range []int{1, 9, 77, 200} { // sizes that never ran
				warm.M = m
				require.NoError(tb, h.Matmul(s, warm, at, at, at, 1, 0))
			}
			fresh := cublaslt.Problem{M: 64, N: 512, K: 512, Type: dtype.F16, Out: dtype.F32}
			err := h.Matmul(s, fresh, at, at, at, 1, 0)
			require.ErrorIs(tb, err, comm.Invalid)
			require.ErrorContains(tb, err, "[64, 512] x [512, 512]")
			require.ErrorContains(tb, err, "Warm")
			require.NoError(tb, s.Wait(ctx))
		})
	})
	fresh := cublaslt.Problem{M: 64, N: 512, K: 512, Type: dtype.F16, Out: dtype.F32}
	require.NoError(t, h.Matmul(s, fresh, at, at, at, 1, 0), "once no world is open")
	require.NoError(t, errors.Join(s.Synchronize(), h.Close(), d.Free(at), s.Close()))
}
