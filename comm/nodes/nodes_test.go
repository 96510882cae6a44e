package nodes

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/comm/commtest"
	"github.com/weftgo/weft/comm/local"
	"github.com/weftgo/weft/dtype"
	"github.com/weftgo/weft/internal/patience"
)

func TestMain(m *testing.M) {
	if node := os.Getenv(nodeEnv); node != "" {
		n, err := strconv.Atoi(node)
		if err == nil {
			err = runNode(n)
		}
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// open makes a world of nodes x ranks on the CPU, over a world of comm/local for each node and for each column.
func open(t testing.TB, nodes, ranks int, timeout time.Duration) *comm.World {
	t.Helper()
	columns := make([]*comm.World, ranks)
	for i := range columns {
		w, err := local.Open(local.Config{Ranks: nodes, Timeout: timeout})
		require.NoError(t, err)
		columns[i] = w
	}
	list := make([]Node, nodes)
	for n := range list {
		w, err := local.Open(local.Config{Ranks: ranks, Timeout: timeout})
		require.NoError(t, err)
		list[n].Inside = w
		for _, column := range columns {
			list[n].Between = append(list[n].Between, column.Local()[n])
		}
	}
	w, err := Open(t.Context(), list...)
	require.NoError(t, err)
	return w
}

// With one rank a node, or one node, the suite of all drivers passes: errors, deadlines and groups come through.
func TestDriver(t *testing.T) {
	sizes := []int{1, 3, 8}
	if testing.Short() {
		sizes = []int{3}
	}
	for name, make := range map[string]func(t testing.TB, ranks int, timeout time.Duration) *comm.World{
		"one node":       func(t testing.TB, ranks int, timeout time.Duration) *comm.World { return open(t, 1, ranks, timeout) },
		"one rank each ": func(t testing.TB, ranks int, timeout time.Duration) *comm.World { return open(t, ranks, 1, timeout) },
	} {
		t.Run(name, func(t *testing.T) {
			commtest.TestDriver(t, func(t testing.TB, ranks int) *comm.World { return make(t, ranks, 0) },
				commtest.Timeouts(make), commtest.Sizes(sizes, nil))
		})
	}
}

// Every operation has the bits of the two-level order.
func TestTwoLevels(t *testing.T) {
	for _, shape := range [][2]int{{2, 4}, {3, 2}, {2, 3}, {4, 2}} {
		t.Run(fmt.Sprint(shape), func(t *testing.T) {
			nodes, ranks := shape[0], shape[1]
			w := open(t, nodes, ranks, 0)
			require.Equal(t, nodes*ranks, w.Size())
			for _, q := range questions(nodes * ranks) {
				commtest.Run(t, w, func(ctx context.Context, tb testing.TB, c *comm.Comm) {
					got, err := q.ask(ctx, c)
					require.NoError(tb, err, "%+v", q)
					want := q.want(c.Rank(), nodes, ranks)
					require.Len(tb, got, len(want), "%+v", q)
					for i := range want {
						require.Equal(tb, math.Float32bits(want[i]), math.Float32bits(got[i]), "%+v: element %d", q, i)
					}
				})
			}
			require.NoError(t, w.Close(t.Context()))
		})
	}
}

// The two-level order is not that of one level, so the test above tells them apart.
func TestOrderMatters(t *testing.T) {
	q := question{kind: comm.AllReduce, typ: dtype.F32, counts: []int{9, 0, 0, 0, 0, 0, 0, 0}, cols: 33}
	require.NotEqual(t, q.twin(2, 4), q.twin(1, 8))
	require.NotEqual(t, q.twin(2, 4), q.twin(4, 2))
}

// Messages within a node and a column, a barrier, several tensors in a call, and what cannot be done.
func TestRest(t *testing.T) {
	w := open(t, 2, 3, 0)
	commtest.Run(t, w, func(ctx context.Context, tb testing.TB, c *comm.Comm) {
		x := comm.Of([]float32{float32(c.Rank())}, 1)
		switch c.Rank() { // 1 to 2 inside, 2 to 5 between
		case 1:
			require.NoError(tb, c.Send(comm.Stream{}, x, 2))
		case 2:
			require.NoError(tb, c.Recv(comm.Stream{}, x, 1))
			require.NoError(tb, c.Send(comm.Stream{}, x, 5))
		case 5:
			require.NoError(tb, c.Recv(comm.Stream{}, x, 2))
			require.Equal(tb, float32(1), comm.Row[float32](x, 0)[0])
		}
		if c.Rank() == 0 {
			err := c.Send(comm.Stream{}, x, 5)
			require.ErrorIs(tb, err, comm.Unavailable)
			require.ErrorContains(tb, err, "another node (1)")
		}
		require.NoError(tb, c.Barrier(comm.Stream{}))
		a, b := comm.Of([]float32{1, 2, 3}, 3), comm.Of([]int32{4, 5}, 1)
		require.NoError(tb, c.Do(comm.Stream{}, &comm.Op{Kind: comm.AllReduce, Parts: []comm.Part{{Dst: a, Src: a}, {Dst: b, Src: b}}}))
		require.Equal(tb, []float32{6, 12, 18}, comm.Row[float32](a, 0))
		require.Equal(tb, []int32{30}, comm.Row[int32](b, 1))
		n := comm.Host(make([]int, 6))
		require.ErrorIs(tb, c.AllToAllV(comm.Stream{}, n, n, comm.Part{Dst: a.Slice(0, 0), Src: a.Slice(0, 0)}), comm.Unavailable)
		deviceCounts(tb, c)
		_, err := c.Split(ctx, 0, 0)
		require.ErrorIs(tb, err, comm.Unavailable)
	})
	sum := w.Local()[0].Stats()[comm.AllReduce]
	require.EqualValues(t, 1, sum.Calls)
	require.Positive(t, sum.SentBytes)
	require.NoError(t, w.Close(t.Context()))
}

// deviceCounts: counts that each rank knows of itself come out on all, and a wrong one is an error on all.
func deviceCounts(tb testing.TB, c *comm.Comm) {
	list := []int32{1, 0, 2, 2, 0, 1}
	own, all := comm.Of([]int32{list[c.Rank()]}, 1), comm.Of(make([]int32, 6), 6)
	big := comm.Of(make([]float32, 12), 1)
	src := comm.Of([]float32{float32(c.Rank()), float32(10 * c.Rank())}, 1)
	require.NoError(tb, c.AllGatherV(comm.Stream{}, comm.OnDevice(own, all, 2), comm.Part{Dst: big, Src: src}))
	require.Equal(tb, list, comm.Row[int32](all, 0))
	view, err := comm.View[float32](big)
	require.NoError(tb, err)
	require.Equal(tb, []float32{0, 2, 20, 3, 30, 5, 0}, view[:7])
	require.NoError(tb, c.ReduceScatterV(comm.Stream{}, comm.OnDevice(own, all, 2), comm.Sum, comm.Part{Dst: src, Src: big}))
	if c.Rank() == 3 {
		require.Equal(tb, float32(180), comm.Row[float32](src, 1)[0])
	}
	for i, text := range []string{"rank 4: own count -1 is not in [0, max 3]", "rank 4: own count 4 is not in [0, max 3]", "rank 4: own count 3 exceeds its 2 rows"} {
		if own = comm.Of([]int32{1}, 1); c.Rank() == 4 {
			own = comm.Of([]int32{[]int32{-1, 4, 3}[i]}, 1)
		}
		err := c.AllGatherV(comm.Stream{}, comm.OnDevice(own, all, 3), comm.Part{Dst: comm.Of(make([]float32, 18), 1), Src: src})
		require.ErrorIs(tb, err, comm.Invalid)
		require.ErrorContains(tb, err, text)
	}
}

// A rank that does not come is named by its rank in the whole world on all others, those that waited for one that waits
// included.
func TestLate(t *testing.T) { patience.Try(t, 100*time.Millisecond, late) }

func late(t testing.TB, wait time.Duration) {
	w := open(t, 2, 3, wait)
	errs := make([]error, 6)
	_ = w.Run(t.Context(), func(ctx context.Context, c *comm.Comm) error {
		if c.Rank() == 4 {
			<-w.Done()
		}
		errs[c.Rank()] = c.Barrier(comm.Stream{})
		return errs[c.Rank()]
	})
	timeouts := 0
	for rank, err := range errs {
		var e *comm.Error
		require.ErrorAs(t, err, &e)
		require.Equal(t, rank, e.Rank)
		if rank != 4 {
			require.Equal(t, 4, e.Peer, "rank %d: %v", rank, err)
		}
		if errors.Is(err, comm.Timeout) {
			timeouts++
			require.Regexp(t, "(inside node 1|between nodes, rank . of each): barrier #1: rank . timeout|world is dead", strings.ReplaceAll(err.Error(), ": timeout", " timeout"))
		} else {
			require.ErrorIs(t, err, comm.Aborted)
		}
	}
	require.Positive(t, timeouts)
	require.ErrorIs(t, w.Err(), comm.Timeout)
	require.NoError(t, w.Close(t.Context()))
}

// A world below that dies by itself ends the whole.
func TestBelowDies(t *testing.T) {
	w := open(t, 2, 2, 0)
	boom := comm.Errorf("test", 1, comm.Remote, "a cable was cut")
	inside := w.Local()[2].Conn().(*conn).in.World()
	time.AfterFunc(10*time.Millisecond, func() { inside.Abort(boom) })
	err := w.Run(t.Context(), func(ctx context.Context, c *comm.Comm) error {
		<-w.Done()
		return c.Barrier(comm.Stream{})
	})
	require.ErrorIs(t, err, comm.Aborted)
	require.ErrorIs(t, w.Err(), comm.Remote)
	require.ErrorContains(t, w.Err(), "inside node 1: test: rank 1: remote: a cable was cut")
	require.NoError(t, w.Close(t.Context()))
}

// After the first call an operation allocates nothing in any rank.
func TestNoAllocations(t *testing.T) {
	const runs = 200
	w := open(t, 2, 2, 0)
	counts := []int{1, 0, 2, 1}
	var before, after runtime.MemStats
	require.NoError(t, w.Run(t.Context(), func(ctx context.Context, c *comm.Comm) error {
		x, all := comm.Of(make([]float32, 32), 8), comm.Of(make([]float32, 32), 8)
		part := comm.Part{Dst: all, Src: x.Slice(0, counts[c.Rank()])}
		for i := range runs + 10 {
			if i == 10 && c.Rank() == 0 {
				runtime.ReadMemStats(&before)
			}
			if err := errors.Join(c.AllReduce(comm.Stream{}, x, x, comm.Sum), c.AllGatherV(comm.Stream{}, comm.Host(counts), part), c.Barrier(comm.Stream{})); err != nil {
				return err
			}
		}
		if c.Rank() == 0 {
			runtime.ReadMemStats(&after)
		}
		return nil
	}))
	require.Less(t, after.Mallocs-before.Mallocs, uint64(runs), "over %d operations of 4 ranks", 3*runs)
	require.NoError(t, w.Close(t.Context()))
}

func TestOpenRefuses(t *testing.T) {
	_, err := Open(t.Context())
	require.ErrorIs(t, err, comm.Invalid)
	_, err = Open(t.Context(), Node{})
	require.ErrorIs(t, err, comm.Invalid)
	a, err := local.Open(local.Config{Ranks: 2})
	require.NoError(t, err)
	b, err := local.Open(local.Config{Ranks: 3})
	require.NoError(t, err)
	_, err = Open(t.Context(), Node{Inside: a, Between: b.Local()[:1]})
	require.ErrorContains(t, err, "node 0: 2 of its 2 ranks are in this process, with 1 columns")
	_, err = Open(t.Context(), Node{Inside: a, Between: b.Local()[:2]})
	require.ErrorContains(t, err, "its column says rank 1 of 3")
	require.NoError(t, errors.Join(a.Close(t.Context()), b.Close(t.Context())))
}
