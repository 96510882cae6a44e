package proctest

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/comm/commtest"
	"github.com/weftgo/weft/comm/local"
	"github.com/weftgo/weft/dtype"
	"github.com/weftgo/weft/symm"
)

// World checks a world that spans processes, from each of them: cases of package commtest, sums whose bits depend on the order
// against comm/local's, messages round a ring, a Region that every rank writes into, and groups of a Split.
// The number of ranks is even. It returns one line of measurements.
func World(t *testing.T, w *comm.World, cases int) string {
	size := w.Size()
	var ran int
	start := time.Now()
	commtest.Run(t, w, func(ctx context.Context, tb testing.TB, c *comm.Comm) {
		if n := commtest.Member(tb, c, cases); c == w.Local()[0] {
			ran = n
		}
	})
	took := time.Since(start)
	commtest.Run(t, w, func(ctx context.Context, tb testing.TB, c *comm.Comm) {
		for _, n := range []int{100, 40_000} { // one trip, and the kernel for more
			sameBits(ctx, tb, c, n)
		}
		gathers(ctx, tb, c)
		region(ctx, tb, c)
		ring(ctx, tb, c)
		groups(ctx, tb, c)
	})
	line := fmt.Sprintf("%d ranks, %d here: %d cases of commtest in %v, all else in %v", size, len(w.Local()), ran,
		took.Round(time.Millisecond), time.Since(start).Round(time.Millisecond)-took.Round(time.Millisecond))
	return line + times(t, w)
}

// times measures a barrier and all-reduces of fp32, in a row without a wait of the host between them.
func times(t *testing.T, w *comm.World) (line string) {
	const rounds = 5
	measure := func(name string, elements int, call func(c *comm.Comm, b comm.Buffer) error) {
		var took time.Duration
		commtest.Run(t, w, func(ctx context.Context, tb testing.TB, c *comm.Comm) {
			b, err := comm.Alloc(c, dtype.F32, 1, elements)
			require.NoError(tb, err)
			require.NoError(tb, c.Barrier(comm.Stream{}))
			require.NoError(tb, c.Wait(ctx, comm.Stream{}))
			start := time.Now()
			for range rounds {
				require.NoError(tb, call(c, b))
			}
			require.NoError(tb, c.Wait(ctx, comm.Stream{}))
			if c == w.Local()[0] {
				took = time.Since(start) / rounds
			}
			require.NoError(tb, comm.Free(c, b))
		})
		line += fmt.Sprintf("; %s %.2f ms", name, took.Seconds()*1e3)
	}
	measure("barrier", 1, func(c *comm.Comm, _ comm.Buffer) error { return c.Barrier(comm.Stream{}) })
	for _, bytes := range []int{4 << 10, 4 << 20, 16 << 20} {
		measure(fmt.Sprintf("all_reduce of %d KiB", bytes>>10), bytes/4, func(c *comm.Comm, b comm.Buffer) error {
			return c.AllReduce(comm.Stream{}, b, b, comm.Sum)
		})
	}
	return line
}

// values are numbers whose sum depends on the order of adding.
func values(rank, n int) []float32 {
	rng := rand.New(rand.NewPCG(uint64(rank), uint64(n)))
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(rng.NormFloat64()) * float32(math.Exp2(float64(rng.IntN(24)-12)))
	}
	return x
}

// twin runs an all-reduce of every rank's values on the CPU.
func twin(tb testing.TB, size, n int) []float32 {
	w, err := local.Open(local.Config{Ranks: size})
	require.NoError(tb, err)
	defer func() { require.NoError(tb, w.Close(context.Background())) }()
	var out []float32
	err = w.Run(tb.Context(), func(ctx context.Context, c *comm.Comm) error {
		x := values(c.Rank(), n)
		if err := c.AllReduce(comm.Stream{}, comm.Of(x, n), comm.Of(x, n), comm.Sum); err != nil {
			return err
		}
		if c.Rank() == 0 {
			out = x
		}
		return nil
	})
	require.NoError(tb, err)
	return out
}

// device copies x to memory of the rank's device.
func device[T dtype.Element](tb testing.TB, c *comm.Comm, x []T, cols int) comm.Buffer {
	host := comm.Of(x, cols)
	b, err := comm.Alloc(c, host.DType(), host.Rows(), cols)
	require.NoError(tb, err)
	tb.Cleanup(func() { _ = comm.Free(c, b) })
	require.NoError(tb, comm.Copy(c, comm.Stream{}, b, host))
	return b
}

func host[T dtype.Element](tb testing.TB, c *comm.Comm, b comm.Buffer) []T {
	x := make([]T, b.Rows()*b.Cols())
	require.NoError(tb, comm.Copy(c, comm.Stream{}, comm.Of(x, b.Cols()), b))
	require.NoError(tb, c.Wait(tb.Context(), comm.Stream{}))
	return x
}

// sameBits holds an all-reduce against comm/local's bits.
func sameBits(ctx context.Context, tb testing.TB, c *comm.Comm, n int) {
	b := device(tb, c, values(c.Rank(), n), n)
	require.NoError(tb, c.AllReduce(comm.Stream{}, b, b, comm.Sum))
	require.NoError(tb, c.Wait(ctx, comm.Stream{}))
	got, want := host[float32](tb, c, b), twin(tb, c.Size(), n)
	for i := range got {
		if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
			tb.Fatalf("all_reduce of %d: element %d is %v, comm/local has %v", n, i, got[i], want[i])
		}
	}
}

// gathers is an all_gatherv of ragged rows, some ranks with none.
func gathers(ctx context.Context, tb testing.TB, c *comm.Comm) {
	counts, total := make([]int, c.Size()), 0
	for r := range counts {
		counts[r] = r * 7 % 5
		total += counts[r]
	}
	var want []int32
	for r, n := range counts {
		for i := range n * 3 {
			want = append(want, int32(1000*r+i))
		}
	}
	before := 0
	for r := range c.Rank() {
		before += counts[r] * 3
	}
	src := device(tb, c, append(want[before:before+counts[c.Rank()]*3:before+counts[c.Rank()]*3], 0, 0, 0), 3).Slice(0, counts[c.Rank()])
	dst := device(tb, c, make([]int32, total*3), 3)
	require.NoError(tb, c.AllGatherV(comm.Stream{}, comm.Host(counts), comm.Part{Dst: dst, Src: src}))
	require.NoError(tb, c.Wait(ctx, comm.Stream{}))
	require.Equal(tb, want, host[int32](tb, c, dst))
}

// region writes into every rank's memory through its addresses, twice, so that memory comes back.
func region(ctx context.Context, tb testing.TB, c *comm.Comm) {
	for range 2 {
		r, err := symm.Alloc(ctx, c, 4096)
		require.NoError(tb, err)
		for peer := range c.Size() {
			mine := device(tb, c, []int32{int32(100*c.Rank() + peer)}, 1)
			require.NoError(tb, comm.Copy(c, comm.Stream{}, r.At(peer, 4*c.Rank(), dtype.I32, 1, 1), mine))
		}
		require.NoError(tb, c.Barrier(comm.Stream{}))
		require.NoError(tb, c.Wait(ctx, comm.Stream{}))
		for peer, v := range host[int32](tb, c, r.At(c.Rank(), 0, dtype.I32, 1, c.Size())) {
			require.EqualValues(tb, 100*peer+c.Rank(), v, "what rank %d wrote", peer)
		}
		require.NoError(tb, c.Barrier(comm.Stream{}))
		require.NoError(tb, c.Wait(ctx, comm.Stream{}))
		require.NoError(tb, r.Close(ctx))
	}
}

// ring sends to the next rank and receives from the one before: ranks of even number send first.
func ring(ctx context.Context, tb testing.TB, c *comm.Comm) {
	next, before := (c.Rank()+1)%c.Size(), (c.Rank()+c.Size()-1)%c.Size()
	src := device(tb, c, []int32{int32(c.Rank()), 1, 2, 3, 4, 5}, 3)
	dst := device(tb, c, make([]int32, 6), 3)
	for i := range 2 {
		if c.Rank()%2 == i {
			require.NoError(tb, c.Send(comm.Stream{}, src, next))
		} else {
			require.NoError(tb, c.Recv(comm.Stream{}, dst, before))
		}
	}
	require.NoError(tb, c.Wait(ctx, comm.Stream{}))
	require.Equal(tb, []int32{int32(before), 1, 2, 3, 4, 5}, host[int32](tb, c, dst))
}

// groups splits the world into ranks of even and odd number, backwards, and sums in each.
func groups(ctx context.Context, tb testing.TB, c *comm.Comm) {
	sub, err := c.Split(ctx, c.Rank()%2, -c.Rank())
	require.NoError(tb, err)
	b := device(tb, sub, []float32{float32(c.Rank()), 1}, 2)
	require.NoError(tb, sub.AllReduce(comm.Stream{}, b, b, comm.Sum))
	all := device(tb, sub, make([]float32, 2*sub.Size()), 2)
	require.NoError(tb, sub.AllGather(comm.Stream{}, all, b))
	require.NoError(tb, sub.Wait(ctx, comm.Stream{}))
	sum := 0
	for r := c.Rank() % 2; r < c.Size(); r += 2 {
		sum += r
	}
	for i, v := range host[float32](tb, sub, all) {
		require.InDelta(tb, []int{sum, sub.Size()}[i%2], v, 0)
	}
	require.NoError(tb, sub.Barrier(comm.Stream{}))
	require.NoError(tb, sub.Wait(ctx, comm.Stream{}))
	require.NoError(tb, sub.Close(ctx))
}
