package commtest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/comm/local"
	"github.com/weftgo/weft/dtype"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// altered is a driver whose operations are changed on the way in or out.
type altered struct {
	comm.Conn
	do func(conn comm.Conn, op *comm.Op) error
}

func (a *altered) Do(_ comm.Stream, op *comm.Op) error { return a.do(a.Conn, op) }

func openAltered(t testing.TB, ranks int, do func(conn comm.Conn, op *comm.Op) error) *comm.World {
	w, err := local.Open(local.Config{Ranks: ranks})
	require.NoError(t, err)
	var comms []*comm.Comm
	for _, c := range w.Local() {
		comms = append(comms, comm.New(&altered{Conn: c.Conn(), do: do}, c.Rank(), ranks))
	}
	return comm.NewWorld(comms)
}

// recorder is a testing.TB whose failure is the result.
type recorder struct {
	testing.TB
	mu   sync.Mutex
	text strings.Builder
}

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Fprintf(&r.text, format, args...)
}
func (r *recorder) Fatalf(format string, args ...any) { r.Errorf(format, args...); r.FailNow() }
func (r *recorder) FailNow()                          { runtime.Goexit() }

// Each of these drivers is wrong in one small way, and the suite says so.
func TestWrongDriversAreCaught(t *testing.T) {
	sum := trial{kind: comm.AllReduce, types: []dtype.DType{dtype.F32}, cols: 67, counts: uniform(4, 3), gap: 4, rough: true}
	gather := trial{kind: comm.AllGatherV, types: []dtype.DType{dtype.I8}, cols: 3, counts: []int{2, 0, 1, 1}, extra: 1, device: true}
	for _, x := range []struct {
		name string
		trial
		do   func(conn comm.Conn, op *comm.Op) error
		text string
	}{
		{"the last bit", sum, func(conn comm.Conn, op *comm.Op) error {
			err := conn.Do(comm.Stream{}, op)
			op.Parts[0].Dst.RowBytes(2)[8] ^= 1
			return err
		}, "row 2, column 2"},
		{"beyond the columns", sum, func(conn comm.Conn, op *comm.Op) error {
			err := conn.Do(comm.Stream{}, op)
			row := op.Parts[0].Dst.RowBytes(1)
			*(*byte)(unsafe.Add(unsafe.Pointer(&row[0]), len(row))) = 0
			return err
		}, "was written outside"},
		{"the source", sum, func(conn comm.Conn, op *comm.Op) error {
			err := conn.Do(comm.Stream{}, op)
			op.Parts[0].Src.RowBytes(0)[0] ^= 1
			return err
		}, "the source changed"},
		{"another reduction", sum, func(conn comm.Conn, op *comm.Op) error {
			op.Reduce = comm.Max
			return conn.Do(comm.Stream{}, op)
		}, "got"},
		{"beyond the rows", gather, func(conn comm.Conn, op *comm.Op) error {
			err := conn.Do(comm.Stream{}, op)
			op.Parts[0].Dst.RowBytes(4)[0] = 0
			return err
		}, "was written outside"},
		{"the counts", gather, func(conn comm.Conn, op *comm.Op) error {
			err := conn.Do(comm.Stream{}, op)
			_, all, _ := op.Send.Device()
			comm.Row[int32](all, 0)[1]++
			return err
		}, "counts"},
		{"nothing done", gather, func(conn comm.Conn, op *comm.Op) error { return nil }, "counts"},
		{"an error", sum, func(conn comm.Conn, op *comm.Op) error { return errors.New("boom") }, "boom"},
	} {
		t.Run(x.name, func(t *testing.T) {
			w := openAltered(t, 4, x.do)
			r := &recorder{TB: t}
			problem := x.pose()
			_ = w.Run(t.Context(), func(ctx context.Context, c *comm.Comm) error {
				_, err := problem.try(r, c)
				if err != nil {
					r.Errorf("%v", err)
				}
				return err
			})
			require.Contains(t, r.text.String(), x.text)
		})
	}
}

// What a driver cannot do is left out, and skipped when nothing remains.
func TestUnavailableIsLeftOut(t *testing.T) {
	open := func(t testing.TB, ranks int) *comm.World {
		return openAltered(t, ranks, func(conn comm.Conn, op *comm.Op) error {
			for _, p := range op.Parts {
				if p.Src.DType() == dtype.F8E5M2 || op.Kind == comm.Broadcast {
					return comm.Errorf(op.Label(), 0, comm.Unavailable, "no such thing here")
				}
			}
			return conn.Do(comm.Stream{}, op)
		})
	}
	s := &suite{open: open, full: []int{2}}
	ran := t.Run("some", func(t *testing.T) {
		s.trials(t, 2, []trial{
			{kind: comm.AllReduce, types: []dtype.DType{dtype.F8E5M2}, cols: 3, counts: uniform(2, 1)},
			{kind: comm.AllReduce, types: []dtype.DType{dtype.F32}, cols: 3, counts: uniform(2, 1)},
		})
	})
	require.True(t, ran)
	skipped := false
	t.Run("none", func(t *testing.T) {
		t.Cleanup(func() { skipped = t.Skipped() })
		s.trials(t, 2, []trial{{kind: comm.Broadcast, types: []dtype.DType{dtype.F32}, cols: 3, counts: uniform(2, 1)}})
	})
	require.True(t, skipped)
}

// Run gives each rank its own TB.
func TestRun(t *testing.T) {
	w, err := local.Open(local.Config{Ranks: 3})
	require.NoError(t, err)
	var ranks [3]bool
	Run(t, w, func(ctx context.Context, tb testing.TB, c *comm.Comm) {
		tb.Log("hello")
		ranks[c.Rank()] = true
		require.NoError(tb, c.Barrier(comm.Stream{}))
	})
	require.Equal(t, [3]bool{true, true, true}, ranks)

	skipped := false
	t.Run("skip", func(t *testing.T) {
		t.Cleanup(func() { skipped = t.Skipped() })
		Run(t, w, func(ctx context.Context, tb testing.TB, c *comm.Comm) {
			if c.Rank() == 1 {
				tb.Skip("not today")
			}
			_ = c.Barrier(comm.Stream{})
		})
	})
	require.True(t, skipped)
	require.ErrorIs(t, w.Local()[0].Barrier(comm.Stream{}), comm.Aborted)
}

// Each world of a few ranks adds up; this is what the suite does for every operation.
func Example() {
	x := trial{kind: comm.AllReduce, types: []dtype.DType{dtype.BF16}, cols: 4, counts: uniform(3, 1)}
	problem := x.pose()
	problem.solve()
	fmt.Println(problem.inputs[0][0].floats(), problem.inputs[1][0].floats(), problem.inputs[2][0].floats())
	fmt.Println(problem.wants[0][0].floats())
	// Output:
	// [-2 1 -1 2] [0 -2 1 -1] [2 0 -2 1]
	// [0 -1 -2 2]
}
