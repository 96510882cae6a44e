package staged

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/comm/commtest"
	"github.com/weftgo/weft/comm/local"
	"github.com/weftgo/weft/dtype"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestDriver runs the conformance suite: with room for every call, and with so little that the larger ones are cut.
func TestDriver(t *testing.T) {
	for name, workspace := range map[string]int{"whole": 0, "cut": 2 << 10} {
		t.Run(name, func(t *testing.T) {
			full := []int{1, 3, 8}
			if testing.Short() {
				full = full[1:2]
			}
			open := func(t testing.TB, ranks int, timeout time.Duration) *comm.World {
				r := newRig(t, ranks, timeout, Config{Workspace: workspace})
				t.Cleanup(func() { require.Zero(t, r.heap.used, "memory of the device") })
				return r.World
			}
			commtest.TestDriver(t, func(t testing.TB, ranks int) *comm.World { return open(t, ranks, 0) },
				commtest.Complete(), commtest.Timeouts(open), commtest.Sizes(full, []int{16}))
		})
	}
}

// result is what one rank has after a call.
type result struct {
	out  []float32
	all  []int32
	sent int64
}

// call is a collective over x and y, rows of cols.
type call struct {
	name       string
	rows, cols int // of x and y, on every rank
	do         func(c *comm.Comm, x, y comm.Buffer, own, all comm.Buffer) error
}

const most = 40 // rows of one rank in a ragged call

func counts(size int) []int {
	n := make([]int, size)
	for i := range n {
		n[i] = (i * 17) % (most + 1)
	}
	return n
}

func calls(size int) []call {
	n := counts(size)
	part := func(x, y comm.Buffer) comm.Part { return comm.Part{Dst: y, Src: x} }
	return []call{
		{"all_reduce", 100, 33, func(c *comm.Comm, x, y, _, _ comm.Buffer) error {
			return c.AllReduce(comm.Stream{}, y, x, comm.Sum)
		}},
		{"all_reduce of long rows", 3, 5000, func(c *comm.Comm, x, y, _, _ comm.Buffer) error {
			return c.AllReduce(comm.Stream{}, y, x, comm.Avg)
		}},
		{"all_gather", most * size, 70, func(c *comm.Comm, x, y, _, _ comm.Buffer) error {
			return c.AllGather(comm.Stream{}, y, x.Slice(0, most))
		}},
		{"all_gather in place", most * size, 70, func(c *comm.Comm, x, _, _, _ comm.Buffer) error {
			return c.AllGather(comm.Stream{}, x, x.Slice(c.Rank()*most, (c.Rank()+1)*most))
		}},
		{"reduce_scatter", most * size, 70, func(c *comm.Comm, x, y, _, _ comm.Buffer) error {
			return c.ReduceScatter(comm.Stream{}, y.Slice(3, 3+most), x, comm.Sum)
		}},
		{"broadcast", 100, 33, func(c *comm.Comm, x, _, _, _ comm.Buffer) error { return c.Broadcast(comm.Stream{}, x, 1) }},
		{"reduce", 100, 33, func(c *comm.Comm, x, y, _, _ comm.Buffer) error {
			return c.Reduce(comm.Stream{}, y, x, comm.Max, 2)
		}},
		{"all_gatherv", most * size, 70, func(c *comm.Comm, x, y, _, _ comm.Buffer) error {
			return c.AllGatherV(comm.Stream{}, comm.Host(n), part(x, y), part(x.Columns(2, 9), y.Columns(0, 0+7)))
		}},
		{"reduce_scatterv", most * size, 70, func(c *comm.Comm, x, y, _, _ comm.Buffer) error {
			return c.ReduceScatterV(comm.Stream{}, comm.Host(n), comm.Sum, part(x, y))
		}},
		{"all_gatherv, counts on the device", most * size, 70, func(c *comm.Comm, x, y, own, all comm.Buffer) error {
			return c.AllGatherV(comm.Stream{}, comm.OnDevice(own, all, most), part(x.Columns(1, 70), y.Columns(0, 69)))
		}},
		{"reduce_scatterv, counts on the device", most * size, 70, func(c *comm.Comm, x, y, own, all comm.Buffer) error {
			return c.ReduceScatterV(comm.Stream{}, comm.OnDevice(own, all, most), comm.Sum, part(x, y))
		}},
		{"alltoallv", most * size, 70, func(c *comm.Comm, x, y, _, _ comm.Buffer) error {
			recv := make([]int, size)
			for i := range recv {
				recv[i] = n[c.Rank()]
			}
			return c.AllToAllV(comm.Stream{}, comm.Host(n), comm.Host(recv), part(x, y))
		}},
	}
}

// run makes the call on every rank of a world and returns what they have, untouched rows of y included.
func (x *call) run(t testing.TB, w *comm.World) []result {
	results := make([]result, w.Size())
	commtest.Run(t, w, func(_ context.Context, tb testing.TB, c *comm.Comm) {
		in, out := make([]float32, x.rows*x.cols), make([]float32, x.rows*x.cols)
		for i := range in {
			in[i] = float32(math.Sin(float64(i*(c.Rank()+1)))) * 3
			out[i] = float32(math.NaN())
		}
		own, all := []int32{int32(counts(w.Size())[c.Rank()])}, make([]int32, w.Size())
		before := c.Stats().Total().SentBytes
		require.NoError(tb, x.do(c, comm.Of(in, x.cols), comm.Of(out, x.cols), comm.Of(own, 1), comm.Of(all, w.Size())))
		results[c.Rank()] = result{append(in, out...), all, c.Stats().Total().SentBytes - before}
	})
	return results
}

// TestCut compares calls that are cut with those of the CPU driver: bits, what is not written, bytes sent.
func TestCut(t *testing.T) {
	const ranks = 4
	for _, x := range calls(ranks) {
		t.Run(x.name, func(t *testing.T) {
			w, err := local.Open(local.Config{Ranks: ranks})
			require.NoError(t, err)
			want := x.run(t, w)
			for _, workspace := range []int{1, 5000, 40 << 10, 1 << 30} {
				r := newRig(t, ranks, time.Minute, Config{Workspace: workspace})
				got := x.run(t, r.World)
				var sent, wantSent int64
				for rank := range want {
					for i, v := range want[rank].out {
						if math.Float32bits(v) != math.Float32bits(got[rank].out[i]) {
							t.Fatalf("workspace %d, rank %d, element %d: %v, want %v", workspace, rank, i, got[rank].out[i], v)
						}
					}
					require.Equal(t, want[rank].all, got[rank].all)
					sent, wantSent = sent+got[rank].sent, wantSent+want[rank].sent
				}
				require.Equal(t, wantSent, sent, "bytes sent by all ranks")
				if workspace == 5000 && x.name != "alltoallv" {
					require.LessOrEqual(t, r.heap.most, ranks*workspace, "memory of the device")
					require.Greater(t, r.ops[0], 1, "it was cut")
				}
				if workspace == 1<<30 {
					require.Equal(t, 1, r.ops[0])
				}
				require.NoError(t, r.Close(t.Context()))
				require.Zero(t, r.heap.used)
			}
		})
	}
}

// Calls that do not fit together are found out when they are cut too, whatever their pieces look like.
func TestCutCallsDiffer(t *testing.T) {
	r := newRig(t, 2, time.Minute, Config{Workspace: 4 << 10})
	commtest.Run(t, r.World, func(_ context.Context, tb testing.TB, c *comm.Comm) {
		x := comm.Of(make([]float32, 100*1000*(c.Rank()+1)), 1000)
		err := c.AllReduce(comm.Stream{}, x, x, comm.Sum)
		require.ErrorIs(tb, err, comm.Invalid)
		require.ErrorContains(tb, err, "all_reduce #1")
		require.ErrorContains(tb, err, "ranks disagree")
	})
	require.NoError(t, r.Close(t.Context()))
}

func TestNoAllocations(t *testing.T) {
	r := newRig(t, 1, time.Minute, Config{})
	c := r.Local()[0]
	x, y := comm.Of(make([]float32, 64*100), 64), comm.Of(make([]float32, 64*100), 64)
	own, all := comm.Of([]int32{7}, 1), comm.Of([]int32{0}, 1)
	for name, fn := range map[string]func() error{
		"all_reduce": func() error { return c.AllReduce(comm.Stream{}, x, x, comm.Sum) },
		"all_gatherv": func() error {
			return c.AllGatherV(comm.Stream{}, comm.OnDevice(own, all, 100), comm.Part{Dst: y, Src: x})
		},
	} {
		require.NoError(t, fn())
		require.Zero(t, testing.AllocsPerRun(50, func() {
			if err := fn(); err != nil {
				t.Error(err)
			}
		}), name)
	}
	require.NoError(t, r.Close(t.Context()))
}

func TestOutOfMemory(t *testing.T) {
	r := newRig(t, 1, time.Minute, Config{})
	r.heap.limit = 10_000
	c := r.Local()[0]
	small, large := comm.Of(make([]int8, 1000), 10), comm.Of(make([]int8, 9000), 10)
	require.NoError(t, c.AllReduce(comm.Stream{}, small, small, comm.Sum))
	err := c.AllReduce(comm.Stream{}, large, large, comm.Sum)
	require.ErrorIs(t, err, comm.Unavailable)
	require.ErrorContains(t, err, "all_reduce #2: rank 0: unavailable: its workspace on cuda:3")
	require.ErrorContains(t, err, "32768 bytes on a device that has 10000")
	require.NoError(t, c.AllReduce(comm.Stream{}, small, small, comm.Sum), "a smaller call still works")
	require.NoError(t, r.Close(t.Context()))
	require.Zero(t, r.heap.used)
	require.ErrorIs(t, c.AllReduce(comm.Stream{}, small, small, comm.Sum), comm.Invalid)
	require.Zero(t, r.heap.used, "a closed rank takes nothing")
}

func TestOpenRefuses(t *testing.T) {
	_, err := Open(nil, Config{})
	require.ErrorIs(t, err, comm.Invalid)
	w, err := local.Open(local.Config{Ranks: 2})
	require.NoError(t, err)
	_, err = Open(w, Config{})
	require.ErrorIs(t, err, comm.Invalid)
	require.ErrorContains(t, err, "on cpu:0 has no device memory")
	_, err = Open(w, Config{Workspace: -1})
	require.ErrorIs(t, err, comm.Invalid)
	require.NoError(t, w.Close(t.Context()))
}

// A dead world's memory comes back when it is closed, as the contract of comm says.
func TestDead(t *testing.T) {
	r := newRig(t, 2, time.Minute, Config{})
	boom := errors.New("boom")
	err := r.Run(t.Context(), func(_ context.Context, c *comm.Comm) error {
		x := comm.Of(make([]float32, 8), 8)
		require.NoError(t, c.AllReduce(comm.Stream{}, x, x, comm.Sum))
		if c.Rank() == 1 {
			return boom
		}
		return c.AllReduce(comm.Stream{}, x, x, comm.Sum)
	})
	require.ErrorIs(t, err, boom)
	require.Len(t, r.heap.blocks, 2)
	require.NoError(t, r.Close(t.Context()))
	require.Zero(t, r.heap.used)
}

// A world below that dies by itself ends this one at once, also where no rank calls anything.
func TestBelowDies(t *testing.T) {
	r := newRig(t, 2, time.Minute, Config{})
	r.below.Abort(comm.Errorf("world", 0, comm.Remote, "a process was lost"))
	select {
	case <-r.Done():
	case <-time.After(10 * time.Second):
		t.Fatal("the world lives on")
	}
	require.ErrorIs(t, r.Err(), comm.Remote)
	require.NoError(t, r.Close(t.Context()))
}

// Every type goes through with its bits.
func TestTypes(t *testing.T) {
	r := newRig(t, 3, time.Minute, Config{})
	commtest.Run(t, r.World, func(_ context.Context, tb testing.TB, c *comm.Comm) {
		for _, typ := range dtype.All() {
			raw := make([]byte, 7*typ.Size())
			for i := range raw {
				raw[i] = byte(i + c.Rank())
			}
			b := comm.OfBytes(raw, typ, 7, 1)
			require.NoError(tb, c.Broadcast(comm.Stream{}, b, 1))
			for i := range raw {
				require.Equal(tb, byte(i+1), raw[i], typ)
			}
		}
	})
	require.NoError(t, r.Close(t.Context()))
}
