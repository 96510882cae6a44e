package comm_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/comm"
)

// notes is a Conn of rank 0 of two that keeps the shape of the last operation and does nothing.
type notes struct{ shape uint64 }

func (n *notes) Device() comm.Device { return comm.Device{} }
func (n *notes) Do(_ comm.Stream, op *comm.Op) error {
	n.shape = op.Shape
	return nil
}
func (n *notes) Split(context.Context, int, int) (comm.Conn, int, int, error) { return nil, 0, 0, nil }
func (n *notes) Wait(context.Context, comm.Stream) error                      { return nil }
func (n *notes) Abort(error)                                                  {}
func (n *notes) Close(context.Context) error                                  { return nil }

// Calls have one shape as long as nothing but addresses differs.
func TestShapes(t *testing.T) {
	n := &notes{}
	c := comm.New(n, 0, 2)
	s := comm.Stream{}
	shape := func(err error) uint64 {
		require.NoError(t, err)
		return n.shape
	}
	reduce := func(rows, cols int, r comm.ReduceOp) uint64 {
		return shape(c.AllReduce(s, f32(rows, cols), f32(rows, cols), r))
	}
	first := reduce(2, 3, comm.Sum)
	require.NotZero(t, first)
	require.Equal(t, first, reduce(2, 3, comm.Sum))
	seen := map[uint64]bool{first: true}
	fresh := func(id uint64) {
		require.NotZero(t, id)
		require.False(t, seen[id])
		seen[id] = true
	}
	fresh(reduce(3, 2, comm.Sum))
	fresh(reduce(3, 2, comm.Max))
	wide := f32(3, 5)
	fresh(shape(c.AllReduce(s, f32(3, 2), wide.Columns(0, 2), comm.Max)))
	fresh(shape(c.Do(s, &comm.Op{Kind: comm.AllReduce, Reduce: comm.Max, Tag: 4, Parts: []comm.Part{{Dst: f32(3, 2), Src: f32(3, 2)}}})))
	fresh(shape(c.Broadcast(s, f32(3, 2), 0)))
	fresh(shape(c.Broadcast(s, f32(3, 2), 1)))
	gather := func(a, b int) uint64 {
		return shape(c.AllGatherV(s, comm.Host([]int{a, b}), comm.Part{Dst: f32(9, 1), Src: f32(4, 1)}))
	}
	fresh(gather(1, 2))
	last := gather(2, 1)
	fresh(last)
	require.Equal(t, last, gather(2, 1))
	send, recv := []int{1, 2}, []int{1, 3}
	exchange := func() uint64 {
		return shape(c.AllToAllV(s, comm.Host(send), comm.Host(recv), comm.Part{Dst: f32(9, 1), Src: f32(4, 1)}))
	}
	fresh(exchange())
	recv[1] = 2 // the caller's slice, which the shape must not hold
	fresh(exchange())
	fresh(shape(comm.New(n, 0, 2).AllReduce(s, f32(2, 3), f32(2, 3), comm.Sum)))

	require.Zero(t, shape(c.AllGatherV(s, comm.Host([]int{1, 1}), comm.Part{Dst: f32(2, 1), Src: f32(1, 1)}, comm.Part{Dst: f32(2, 1), Src: f32(1, 1)})),
		"more than one part")
}

// A known shape does not excuse buffers that overlap.
func TestKnownShapeAtOtherAddresses(t *testing.T) {
	c := comm.New(&notes{}, 0, 2)
	s := comm.Stream{}
	x := f32(8, 3)
	require.NoError(t, c.AllReduce(s, x.Slice(0, 3), x.Slice(3, 6), comm.Sum))
	require.NoError(t, c.AllReduce(s, x.Slice(0, 3), x.Slice(0, 3), comm.Sum), "in place")
	require.ErrorContains(t, c.AllReduce(s, x.Slice(0, 3), x.Slice(1, 4), comm.Sum), "overlap")
	require.ErrorContains(t, c.AllReduce(s, x.Slice(0, 3), x.Slice(1, 4), comm.Sum), "overlap", "again")
	require.ErrorContains(t, c.AllReduce(s, comm.Of(make([]float32, 9), 2), x.Slice(1, 4), comm.Sum), "not a whole number of rows")
	require.NoError(t, c.AllReduce(s, x.Slice(0, 3), x.Slice(3, 6), comm.Sum))
}

// The time of short calls is that of a sample, but all are counted.
func TestShortCallsAreCounted(t *testing.T) {
	c := comm.New(&notes{}, 0, 2)
	x := f32(2, 2)
	for range 100 {
		require.NoError(t, c.AllReduce(comm.Stream{}, x, x, comm.Sum))
	}
	require.EqualValues(t, 100, c.Stats()[comm.AllReduce].Calls)
	require.Positive(t, c.Stats()[comm.AllReduce].Time)
}
