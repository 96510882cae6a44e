package comm_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/comm/commtest"
	"github.com/weftgo/weft/comm/local"
	"github.com/weftgo/weft/dtype"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t testing.TB, ranks int) *comm.World {
	w, err := local.Open(local.Config{Ranks: ranks})
	require.NoError(t, err)
	return w
}

func f32(rows, cols int) comm.Buffer { return comm.Of(make([]float32, rows*cols), cols) }

// What one rank can see is refused before anybody waits.
func TestInvalidCalls(t *testing.T) {
	w := open(t, 4)
	c := w.Local()[1]
	s := comm.Stream{}
	own, all := comm.Of([]int32{1}, 1), comm.Of(make([]int32, 4), 4)
	gpu := comm.At(comm.Device{Kind: comm.CUDA}, 256, dtype.F32, 2, 3, 3)
	big := f32(8, 3)
	for text, err := range map[string]error{
		"dst has 3 rows, src 2":                     c.AllReduce(s, f32(3, 3), f32(2, 3), comm.Sum),
		"differ in type or columns":                 c.AllReduce(s, f32(2, 3), f32(2, 4), comm.Sum),
		"dst: no buffer given":                      c.AllReduce(s, comm.Buffer{}, f32(2, 3), comm.Sum),
		"avg of i8":                                 c.AllReduce(s, comm.Of([]int8{1}, 1), comm.Of([]int8{1}, 1), comm.Avg),
		"unknown reduction":                         c.AllReduce(s, f32(2, 3), f32(2, 3), 77),
		"not on this rank's device cpu:0":           c.AllReduce(s, gpu, gpu, comm.Sum),
		"dst has 7 rows; 4 ranks x 2 rows are 8":    c.AllGather(s, f32(7, 3), f32(2, 3)),
		"src has 9 rows; 4 ranks x 2 rows are 8":    c.ReduceScatter(s, f32(2, 3), f32(9, 3), comm.Sum),
		"src is this rank's part of dst":            c.AllGather(s, big, big.Slice(0, 2)),
		"dst is this rank's part of src":            c.ReduceScatter(s, big.Slice(4, 6), big, comm.Sum),
		"3 counts for 4 ranks":                      c.AllGatherV(s, comm.Host([]int{1, 2, 3}), comm.Part{Dst: f32(6, 3), Src: f32(2, 3)}),
		"count -2 of rank 2 is negative":            c.AllGatherV(s, comm.Host([]int{1, 2, -2, 3}), comm.Part{Dst: f32(6, 3), Src: f32(2, 3)}),
		"overflows at rank 1":                       c.AllGatherV(s, comm.Host([]int{math.MaxInt, 1, 0, 0}), comm.Part{Dst: f32(6, 3), Src: f32(2, 3)}),
		"no counts given":                           c.AllGatherV(s, comm.Counts{}, comm.Part{Dst: f32(6, 3), Src: f32(2, 3)}),
		"src has 2 rows, the counts say 3":          c.AllGatherV(s, comm.Host([]int{0, 3, 0, 0}), comm.Part{Dst: f32(6, 3), Src: f32(2, 3)}),
		"dst has 6 rows, the counts need 7":         c.AllGatherV(s, comm.Host([]int{5, 2, 0, 0}), comm.Part{Dst: f32(6, 3), Src: f32(2, 3)}),
		"dst has 6 rows, the counts need 8":         c.AllGatherV(s, comm.OnDevice(own, all, 2), comm.Part{Dst: f32(6, 3), Src: f32(2, 3)}),
		"max -1 is not in":                          c.AllGatherV(s, comm.OnDevice(own, all, -1), comm.Part{Dst: f32(6, 3), Src: f32(2, 3)}),
		"counts: all: i32[1, 1] cpu:0 where":        c.AllGatherV(s, comm.OnDevice(own, own, 1), comm.Part{Dst: f32(6, 3), Src: f32(2, 3)}),
		"counts: own: f32[1, 1] cpu:0 where":        c.AllGatherV(s, comm.OnDevice(f32(1, 1), all, 1), comm.Part{Dst: f32(6, 3), Src: f32(2, 3)}),
		"no tensors given":                          c.AllGatherV(s, comm.Host([]int{1, 1, 1, 1})),
		"part 1: dst has 3 rows, the counts need 4": c.AllGatherV(s, comm.Host([]int{1, 1, 1, 1}), comm.Part{Dst: f32(4, 3), Src: f32(1, 3)}, comm.Part{Dst: f32(3, 3), Src: f32(1, 3)}),
		"dst has 1 rows, the counts need 2":         c.ReduceScatterV(s, comm.Host([]int{1, 2, 1, 1}), comm.Sum, comm.Part{Dst: f32(1, 3), Src: f32(5, 3)}),
		"no receive counts given":                   c.AllToAllV(s, comm.Host([]int{1, 1, 1, 1}), comm.Counts{}, comm.Part{Dst: f32(4, 3), Src: f32(4, 3)}),
		"src has 4 rows, the counts say 5":          c.AllToAllV(s, comm.Host([]int{1, 2, 1, 1}), comm.Host([]int{1, 1, 1, 1}), comm.Part{Dst: f32(4, 3), Src: f32(4, 3)}),
		"dst f32[8, 3] cpu:0 and src f32[8, 3]":     c.AllToAllV(s, comm.Host([]int{1, 2, 1, 1}), comm.Host([]int{1, 1, 1, 1}), comm.Part{Dst: big, Src: big}),
		"rank 4 is not in [0, 4)":                   c.Broadcast(s, f32(1, 3), 4),
		"rank 1 exchanges with itself":              c.Send(s, f32(1, 3), 1),
		"rank -1 is not in [0, 4)":                  c.Recv(s, f32(1, 3), -1),
		"a slice of 7 elements is not a whole":      c.Broadcast(s, comm.Of(make([]float32, 7), 3), 0),
		"unknown operation op(99)":                  c.Do(s, &comm.Op{Kind: 99}),
	} {
		require.ErrorContains(t, err, text)
		require.ErrorIs(t, err, comm.Invalid)
		var e *comm.Error
		require.ErrorAs(t, err, &e)
		require.Equal(t, 1, e.Rank)
	}
	require.NoError(t, w.Err(), "a call that never began harms nobody")
	require.Zero(t, c.Stats().Total().Calls)
}

func TestAllocAndCopy(t *testing.T) {
	c := open(t, 1).Local()[0]
	for _, typ := range dtype.All() {
		b, err := comm.Alloc(c, typ, 3, 5)
		require.NoError(t, err)
		require.Equal(t, 3*5*typ.Size(), len(b.Bytes()))
		require.Zero(t, b.Addr()%8)
		require.NoError(t, comm.Free(c, b))
	}
	for _, x := range [][2]int{{-1, 1}, {1, 0}, {math.MaxInt / 2, 3}} {
		_, err := comm.Alloc(c, dtype.F32, x[0], x[1])
		require.ErrorIs(t, err, comm.Invalid)
	}
	src := comm.Of([]int32{1, 2, 3, 4, 5, 6}, 3)
	dst := comm.Of(make([]int32, 4), 2)
	require.NoError(t, comm.Copy(c, comm.Stream{}, dst, src.Columns(1, 3)))
	got, err := comm.View[int32](dst)
	require.NoError(t, err)
	require.Equal(t, []int32{2, 3, 5, 6}, got)
	require.ErrorIs(t, comm.Copy(c, comm.Stream{}, dst, src), comm.Invalid)
	gpu := comm.At(comm.Device{Kind: comm.CUDA}, 256, dtype.I32, 2, 2, 2)
	require.ErrorIs(t, comm.Copy(c, comm.Stream{}, gpu, dst), comm.Unavailable)
}

// spans records what a tracer hears.
type spans struct{ lines []string }

func (s *spans) Begin(rank int, op *comm.Op) {
	s.lines = append(s.lines, fmt.Sprintf("%d begin %v", rank, op))
}
func (s *spans) End(rank int, op *comm.Op, err error) {
	s.lines = append(s.lines, fmt.Sprintf("%d end %v sent %d", rank, op.Label(), op.Stats.SentBytes))
}

func TestTracerAndStats(t *testing.T) {
	w := open(t, 2)
	tracers := make([]spans, 2)
	commtest.Run(t, w, func(ctx context.Context, tb testing.TB, c *comm.Comm) {
		c.SetTracer(&tracers[c.Rank()])
		sub, err := c.Split(ctx, 0, -c.Rank())
		require.NoError(tb, err)
		x := f32(4, 8)
		require.NoError(tb, c.AllReduce(comm.Stream{}, x, x, comm.Sum))
		before := sub.Stats()
		require.NoError(tb, sub.Broadcast(comm.Stream{}, x, 0)) // from rank 1 of the world
		d := sub.Stats().Sub(before)
		require.EqualValues(tb, 1, d[comm.Broadcast].Calls)
		require.Equal(tb, d, before.Add(d).Sub(before))
		require.Zero(tb, c.Stats()[comm.Broadcast].Calls, "a group counts for itself")
	})
	require.Equal(t, []string{
		"0 begin all_reduce #1 sum f32[4, 8]", "0 end all_reduce #1 sent 128",
		"0 begin broadcast #1 root 0 f32[4, 8]", "0 end broadcast #1 sent 128",
	}, tracers[0].lines)
	require.Equal(t, "1 end broadcast #1 sent 0", tracers[1].lines[3])
}

func TestErrors(t *testing.T) {
	cause := &comm.Error{Op: "barrier #7", Rank: 2, Peer: 5, Code: comm.Timeout, Err: errors.New("waited 1s")}
	require.EqualError(t, cause, "barrier #7: rank 2: timeout (rank 5): waited 1s")
	e := comm.AbortedError("send #1", 3, fmt.Errorf("dead: %w", cause))
	require.Equal(t, 5, e.Peer)
	require.ErrorIs(t, e, comm.Aborted)
	require.ErrorIs(t, e, comm.Timeout, "the cause is still seen")
	require.NotErrorIs(t, e, comm.Invalid)
	require.Equal(t, 4, comm.AbortedError("x", 0, comm.Errorf("run", 4, comm.Internal, "boom")).Peer)
	require.Equal(t, comm.NoPeer, comm.AbortedError("x", 0, errors.New("boom")).Peer)
}

// Four ranks have 1, 0, 2 and 1 rows of their own; each gets all of them.
// A world's Comms are for one goroutine each, so a second Run cannot begin before the first has returned.
func TestSecondRun(t *testing.T) {
	w := open(t, 2)
	require.NoError(t, w.Run(context.Background(), func(ctx context.Context, c *comm.Comm) error {
		if c.Rank() == 0 {
			err := w.Run(ctx, func(context.Context, *comm.Comm) error { return errors.New("it ran") })
			require.ErrorIs(t, err, comm.Invalid)
			require.ErrorContains(t, err, "another Run")
		}
		return c.Barrier(comm.Stream{})
	}))
	require.NoError(t, w.Run(context.Background(), func(ctx context.Context, c *comm.Comm) error { return c.Barrier(comm.Stream{}) }))
}

func Example() {
	world, err := local.Open(local.Config{Ranks: 4})
	if err != nil {
		panic(err)
	}
	counts := []int{1, 0, 2, 1}
	err = world.Run(context.Background(), func(ctx context.Context, c *comm.Comm) error {
		own := make([]float32, counts[c.Rank()]*2)
		for i := range own {
			own[i] = float32(c.Rank())
		}
		all := make([]float32, 4*2)
		part := comm.Part{Dst: comm.Of(all, 2), Src: comm.Of(own, 2)}
		if err := c.AllGatherV(comm.Stream{}, comm.Host(counts), part); err != nil {
			return err
		}
		if c.Rank() == 1 { // which had none
			fmt.Println(all)
		}
		return nil
	})
	if err != nil {
		panic(err)
	}
	// Output: [0 0 2 2 2 2 3 3]
}

// The first rank that fails ends the run: Run returns its error, and the others' calls say who it was.
func ExampleWorld_Run() {
	world, err := local.Open(local.Config{Ranks: 3})
	if err != nil {
		panic(err)
	}
	err = world.Run(context.Background(), func(ctx context.Context, c *comm.Comm) error {
		if c.Rank() == 2 {
			return errors.New("out of tokens")
		}
		err := c.Barrier(comm.Stream{})
		if c.Rank() == 0 {
			fmt.Println(err)
		}
		return err
	})
	fmt.Println(err)
	fmt.Println(world.Err() != nil)
	// Output:
	// barrier #1: rank 0: aborted (rank 2): the world is dead: run: rank 2: internal: out of tokens
	// run: rank 2: internal: out of tokens
	// true
}
