package commtest

import (
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/comm"
)

// problem is a trial with its inputs and results, by rank and part. They are the same for all ranks, so the first that
// needs them makes them.
type problem struct {
	trial
	once          sync.Once
	inputs, wants [][]tensor
}

// pose makes the trial a problem that all ranks may share.
func (x trial) pose() *problem { return &problem{trial: x} }

func (x *problem) solve() {
	x.inputs, x.wants = make([][]tensor, len(x.counts)), make([][]tensor, len(x.counts))
	for p := range x.types {
		var inputs []tensor
		for i := range x.counts {
			inputs = append(inputs, x.input(i, p))
			x.inputs[i] = append(x.inputs[i], inputs[i])
		}
		for i := range x.counts {
			if x.kind == comm.AllReduce && i > 0 {
				x.wants[i] = append(x.wants[i], x.wants[0][p])
				continue
			}
			x.wants[i] = append(x.wants[i], x.want(i, p, inputs))
		}
	}
}

// memory is the buffers of one part on one rank.
type memory struct {
	dst, src field
	lo, hi   int // rows of dst that the call writes
}

// prepare makes the buffers of a part.
func (x *problem) prepare(tb testing.TB, c *comm.Comm, part int) (memory, comm.Part) {
	t, cols, rank := x.types[part], x.cols+part, c.Rank()
	in, out := x.inputs[rank][part], x.wants[rank][part].rows
	spare := 0
	if x.ragged() {
		spare = x.extra
	}
	need := out + spare
	if x.device && x.kind != comm.ReduceScatterV {
		need = max(need, c.Size()*slices.Max(x.counts))
	}
	var m memory
	switch {
	case x.inPlace && (x.kind == comm.AllGather || x.kind == comm.AllGatherV):
		m.dst = alloc(tb, c, t, need, cols, x.gap)
		m.src.view = m.dst.view.Slice(x.before(rank), x.before(rank+1))
	case x.inPlace && (x.kind == comm.ReduceScatter || x.kind == comm.ReduceScatterV):
		m.src = alloc(tb, c, t, in.rows+spare, cols, x.gap)
		m.dst.view = m.src.view.Slice(x.before(rank), x.before(rank+1))
	case x.inPlace || x.kind == comm.Broadcast:
		m.src = alloc(tb, c, t, in.rows, cols, x.gap)
		m.dst = m.src
	default:
		m.src = alloc(tb, c, t, in.rows+spare, cols, x.gap)
		m.dst = alloc(tb, c, t, need, cols, x.gap)
	}
	m.hi = out
	if x.kind != comm.Broadcast || rank == x.root {
		upload(tb, c, m.src.view.Slice(0, in.rows), in)
	}
	p := comm.Part{Dst: m.dst.view, Src: m.src.view}
	if x.kind == comm.Reduce && rank != x.root {
		p.Dst = comm.Buffer{}
	}
	return m, p
}

// call issues the collective.
func (x *problem) call(tb testing.TB, c *comm.Comm, parts []comm.Part) error {
	op := &comm.Op{Kind: x.kind, Reduce: x.reduce, Peer: x.root, Parts: parts}
	var all comm.Buffer
	var want []int
	switch {
	case x.kind == comm.AllToAllV && x.device:
		want = x.recvCounts(c.Rank())
		all = int32s(tb, c, make([]int, c.Size())...)
		op.Send = comm.OnDevice(int32s(tb, c, x.sendCounts(c.Rank())...), comm.Buffer{}, slices.Max(x.counts))
		op.Recv = comm.OnDevice(comm.Buffer{}, all, slices.Max(x.counts))
	case x.kind == comm.AllToAllV:
		op.Send, op.Recv = comm.Host(x.sendCounts(c.Rank())), comm.Host(x.recvCounts(c.Rank()))
	case x.ragged() && x.device:
		want = x.counts
		all = int32s(tb, c, make([]int, c.Size())...)
		op.Send = comm.OnDevice(int32s(tb, c, x.counts[c.Rank()]), all, slices.Max(x.counts))
	case x.ragged():
		op.Send = comm.Host(x.counts)
	}
	if err := c.Do(comm.Stream{}, op); err != nil {
		return err
	}
	if err := c.Wait(tb.Context(), comm.Stream{}); err != nil {
		return err
	}
	if want != nil {
		require.Equal(tb, want, ints(tb, c, all), "%v: counts", x)
	}
	return nil
}

// try runs the trial on one rank and compares every byte of its memory. It returns the results, or Unavailable.
func (x *problem) try(tb testing.TB, c *comm.Comm) ([]tensor, error) {
	x.once.Do(x.solve)
	memories := make([]memory, len(x.types))
	parts := make([]comm.Part, len(x.types))
	for p := range parts {
		memories[p], parts[p] = x.prepare(tb, c, p)
	}
	if err := x.call(tb, c, parts); err != nil {
		return nil, err
	}
	var results []tensor
	for p, m := range memories {
		got := download(tb, c, m.dst.view.Slice(m.lo, m.hi))
		want := x.wants[c.Rank()][p]
		if i := mismatch(got, want); i >= 0 {
			tb.Fatalf("%v: part %d, row %d, column %d: got %v, want %v", x, p, i/got.cols, i%got.cols, float(got, i), float(want, i))
		}
		results = append(results, got)
		if !m.dst.whole.IsZero() && !(x.inPlace && x.kind == comm.Reduce) {
			m.dst.requireMargin(tb, c, m.lo, m.hi)
		}
		if in := x.inputs[c.Rank()][p]; !x.inPlace && x.kind != comm.Broadcast {
			require.Equal(tb, -1, mismatch(download(tb, c, m.src.view.Slice(0, in.rows)), in), "%v: part %d: the source changed", x, p)
		}
	}
	return results, nil
}
