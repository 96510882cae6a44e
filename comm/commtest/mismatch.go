package commtest

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/dtype"
)

// allInvalid runs fn once on every rank and requires Invalid, with all of the words, on each; nobody may wait for good.
func (s *suite) allInvalid(t *testing.T, w *comm.World, fn func(tb testing.TB, c *comm.Comm) error, words ...string) {
	Run(t, w, func(ctx context.Context, tb testing.TB, c *comm.Comm) {
		err := fn(tb, c)
		if err == nil {
			err = c.Wait(ctx, comm.Stream{})
		}
		if errors.Is(err, comm.Unavailable) && !s.complete {
			tb.Skip(err)
		}
		require.ErrorIs(tb, err, comm.Invalid)
		var e *comm.Error
		require.ErrorAs(tb, err, &e)
		require.Equal(tb, c.Rank(), e.Rank)
		for _, word := range words {
			require.ErrorContains(tb, err, word)
		}
	})
}

// misfit is a call that does not fit together over mismatchRanks ranks: the error must hold the words.
type misfit struct {
	name  string
	call  func(tb testing.TB, c *comm.Comm) error
	words []string
}

const mismatchRanks, oddRank = 4, 2

func buf(tb testing.TB, c *comm.Comm, rows, cols int) comm.Buffer {
	return alloc(tb, c, dtype.F32, rows, cols, 0).view
}

// own is usual, but other on the odd rank.
func own(c *comm.Comm, usual, other int) int {
	if c.Rank() == oddRank {
		return other
	}
	return usual
}

func mismatchedCalls() []misfit {
	return []misfit{
		{"kind", func(tb testing.TB, c *comm.Comm) error {
			if c.Rank() == oddRank {
				return c.Barrier(comm.Stream{})
			}
			return c.AllReduce(comm.Stream{}, buf(tb, c, 2, 3), buf(tb, c, 2, 3), comm.Sum)
		}, []string{"rank 0 calls all_reduce", "rank 2 calls barrier"}},
		{"rows", func(tb testing.TB, c *comm.Comm) error {
			n := own(c, 2, 5)
			return c.AllReduce(comm.Stream{}, buf(tb, c, n, 3), buf(tb, c, n, 3), comm.Sum)
		}, []string{"rank 0 calls", "f32[2, 3]", "rank 2 calls", "f32[5, 3]"}},
		{"columns", func(tb testing.TB, c *comm.Comm) error {
			n := own(c, 3, 4)
			return c.AllGather(comm.Stream{}, buf(tb, c, 2*mismatchRanks, n), buf(tb, c, 2, n))
		}, []string{"f32[2, 3]", "f32[2, 4]"}},
		{"reduction", func(tb testing.TB, c *comm.Comm) error {
			r := comm.ReduceOp(own(c, int(comm.Sum), int(comm.Max)))
			return c.AllReduce(comm.Stream{}, buf(tb, c, 2, 3), buf(tb, c, 2, 3), r)
		}, []string{"sum", "max"}},
		{"root", func(tb testing.TB, c *comm.Comm) error {
			return c.Broadcast(comm.Stream{}, buf(tb, c, 2, 3), own(c, 1, 3))
		}, []string{"root 1", "root 3"}},
		{"counts", func(tb testing.TB, c *comm.Comm) error {
			n := comm.Host([]int{1, own(c, 1, 2), 1, 1})
			return c.AllGatherV(comm.Stream{}, n, comm.Part{Dst: buf(tb, c, 8, 3), Src: buf(tb, c, 2, 3)})
		}, []string{"[1 1 1 1]", "[1 2 1 1]", "rank 2 calls"}},
		{"parts", func(tb testing.TB, c *comm.Comm) error {
			p := comm.Part{Dst: buf(tb, c, 4, 3), Src: buf(tb, c, 1, 3)}
			return c.AllGatherV(comm.Stream{}, comm.Host(uniform(mismatchRanks, 1)), []comm.Part{p, p}[:own(c, 1, 2)]...)
		}, []string{"rank 0 calls", "rank 2 calls"}},
		{"what is sent and expected", func(tb testing.TB, c *comm.Comm) error {
			send, recv := uniform(mismatchRanks, 1), uniform(mismatchRanks, 1)
			if c.Rank() == oddRank {
				send[3] = 2
			}
			return c.AllToAllV(comm.Stream{}, comm.Host(send), comm.Host(recv), comm.Part{Dst: buf(tb, c, 9, 3), Src: buf(tb, c, 9, 3)})
		}, []string{"rank 2 sends 2 rows to rank 3, which expects 1"}},
	}
}

func mismatchedCounts() []misfit {
	return []misfit{
		{"own count over max", func(tb testing.TB, c *comm.Comm) error {
			n := comm.OnDevice(int32s(tb, c, own(c, 1, 7)), int32s(tb, c, 0, 0, 0, 0), 2)
			return c.AllGatherV(comm.Stream{}, n, comm.Part{Dst: buf(tb, c, 8, 3), Src: buf(tb, c, 9, 3)})
		}, []string{"rank 2", "7", "max 2"}},
		{"own count negative", func(tb testing.TB, c *comm.Comm) error {
			n := comm.OnDevice(int32s(tb, c, own(c, 1, -1)), int32s(tb, c, 0, 0, 0, 0), 2)
			return c.ReduceScatterV(comm.Stream{}, n, comm.Sum, comm.Part{Dst: buf(tb, c, 8, 3), Src: buf(tb, c, 9, 3)})
		}, []string{"rank 2", "-1", "max 2"}},
		{"own count over the rows", func(tb testing.TB, c *comm.Comm) error {
			n := comm.OnDevice(int32s(tb, c, own(c, 1, 2)), int32s(tb, c, 0, 0, 0, 0), 2)
			return c.AllGatherV(comm.Stream{}, n, comm.Part{Dst: buf(tb, c, 8, 3), Src: buf(tb, c, 1, 3)})
		}, []string{"rank 2", "own count 2", "1 rows"}},
		{"send count over max", func(tb testing.TB, c *comm.Comm) error {
			send := comm.OnDevice(int32s(tb, c, 1, 1, own(c, 1, 5), 1), comm.Buffer{}, 2)
			recv := comm.OnDevice(comm.Buffer{}, int32s(tb, c, 0, 0, 0, 0), 2)
			return c.AllToAllV(comm.Stream{}, send, recv, comm.Part{Dst: buf(tb, c, 8, 3), Src: buf(tb, c, 9, 3)})
		}, []string{"rank 2", "count 5", "max 2"}},
		{"host and device counts", func(tb testing.TB, c *comm.Comm) error {
			n := comm.Host(uniform(mismatchRanks, 1))
			if c.Rank() == oddRank {
				n = comm.OnDevice(int32s(tb, c, 1), int32s(tb, c, 0, 0, 0, 0), 1)
			}
			return c.AllGatherV(comm.Stream{}, n, comm.Part{Dst: buf(tb, c, 4, 3), Src: buf(tb, c, 1, 3)})
		}, []string{"counts [1 1 1 1]", "counts on the device", "rank 2 calls"}},
		{"alltoallv in place", func(tb testing.TB, c *comm.Comm) error {
			b := buf(tb, c, 4, 3)
			return c.AllToAllV(comm.Stream{}, comm.Host(uniform(mismatchRanks, 1)), comm.Host(uniform(mismatchRanks, 1)), comm.Part{Dst: b, Src: b})
		}, []string{"overlap"}},
		{"shifted in place", func(tb testing.TB, c *comm.Comm) error {
			b := buf(tb, c, 5, 3)
			return c.AllReduce(comm.Stream{}, b.Slice(0, 4), b.Slice(1, 5), comm.Sum)
		}, []string{"overlap"}},
	}
}

// mismatches are calls that do not fit together: Invalid on every rank, naming both sides.
func (s *suite) mismatches(t *testing.T) {
	for _, x := range append(mismatchedCalls(), mismatchedCounts()...) {
		t.Run(x.name, func(t *testing.T) {
			w := s.world(t, mismatchRanks)
			s.allInvalid(t, w, x.call, x.words...)
			if w.Err() == nil { // a driver may declare the world dead; if not, it must work
				Run(t, w, func(ctx context.Context, tb testing.TB, c *comm.Comm) {
					y := trial{kind: comm.AllReduce, types: []dtype.DType{dtype.F32}, cols: 3, counts: uniform(mismatchRanks, 2)}
					_, err := y.pose().try(tb, c)
					require.NoError(tb, err, "after the mismatch")
				})
			}
		})
	}
}
