package commtest

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/dtype"
)

// trial is one collective with its inputs.
type trial struct {
	kind    comm.OpKind
	reduce  comm.ReduceOp
	root    int
	types   []dtype.DType // one part each
	cols    int           // of part 0; part i has cols + i
	counts  []int         // rows per rank; the uniform forms use counts[0]
	gap     int           // elements between rows
	extra   int           // rows that buffers have beyond what the counts need
	inPlace bool
	device  bool // counts on the device
	rough   bool // values whose sums depend on the order, instead of exact ones
	special bool // with infinities and NaN
}

func (x trial) String() string {
	s := fmt.Sprintf("%v %v %v root %d cols %d counts %v gap %d extra %d", x.kind, x.reduce, x.types, x.root, x.cols, x.counts, x.gap, x.extra)
	for _, flag := range []struct {
		set  bool
		name string
	}{{x.inPlace, " in place"}, {x.device, " device counts"}, {x.rough, " rough"}, {x.special, " special"}} {
		if flag.set {
			s += flag.name
		}
	}
	return s
}

func (x trial) ragged() bool {
	return x.kind == comm.AllGatherV || x.kind == comm.ReduceScatterV || x.kind == comm.AllToAllV
}

// rows returns the rows of rank i where each rank has its own number.
func (x trial) rows(i int) int {
	if x.kind == comm.AllGather || x.kind == comm.ReduceScatter {
		return x.counts[0]
	}
	return x.counts[i]
}

// before returns the rows of the ranks before i.
func (x trial) before(i int) (sum int) {
	for k := range i {
		sum += x.rows(k)
	}
	return sum
}

// sends returns the rows that rank i sends to rank j in an all-to-all.
func (x trial) sends(i, j int) int { return x.counts[(i+2*j)%len(x.counts)] }

func (x trial) sendCounts(i int) []int {
	n := make([]int, len(x.counts))
	for j := range n {
		n[j] = x.sends(i, j)
	}
	return n
}

func (x trial) recvCounts(j int) []int {
	n := make([]int, len(x.counts))
	for i := range n {
		n[i] = x.sends(i, j)
	}
	return n
}

func sum(n []int) (s int) {
	for _, v := range n {
		s += v
	}
	return s
}

// inputRows is the rows that rank i contributes.
func (x trial) inputRows(i int) int {
	switch x.kind {
	case comm.AllGather, comm.AllGatherV:
		return x.rows(i)
	case comm.ReduceScatter, comm.ReduceScatterV:
		return x.before(len(x.counts))
	case comm.AllToAllV:
		return sum(x.sendCounts(i))
	}
	return x.counts[0]
}

// input is what rank i contributes to a part.
func (x trial) input(i, part int) tensor {
	t, rows, cols := x.types[part], x.inputRows(i), x.cols+part
	if x.rough {
		return rough(t, rows, cols, i, part, x.special)
	}
	return exact(t, rows, cols, i, part)
}

// want is what rank i must get for a part. A rank that gets nothing has rows 0.
func (x trial) want(i, part int) tensor {
	inputs := make([]tensor, len(x.counts))
	for k := range inputs {
		inputs[k] = x.input(k, part)
	}
	t, cols := x.types[part], x.cols+part
	switch x.kind {
	case comm.AllReduce:
		return reduce(inputs, x.reduce)
	case comm.Reduce:
		if i != x.root {
			return newTensor(t, 0, cols)
		}
		return reduce(inputs, x.reduce)
	case comm.Broadcast:
		return inputs[x.root]
	case comm.AllGather, comm.AllGatherV:
		return concat(t, cols, inputs...)
	case comm.ReduceScatter, comm.ReduceScatterV:
		for k := range inputs {
			inputs[k] = inputs[k].slice(x.before(i), x.before(i+1))
		}
		return reduce(inputs, x.reduce)
	default: // AllToAllV
		for k := range inputs {
			at := sum(x.sendCounts(k)[:i])
			inputs[k] = inputs[k].slice(at, at+x.sends(k, i))
		}
		return concat(t, cols, inputs...)
	}
}

// memory is the buffers of one part on one rank.
type memory struct {
	dst, src field
	lo, hi   int // rows of dst that the call writes
}

// prepare makes the buffers of a part.
func (x trial) prepare(tb testing.TB, c *comm.Comm, part int) (memory, comm.Part) {
	t, cols, rank := x.types[part], x.cols+part, c.Rank()
	in, out := x.input(rank, part), x.want(rank, part).rows
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
func (x trial) call(tb testing.TB, c *comm.Comm, parts []comm.Part) error {
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
func (x trial) try(tb testing.TB, c *comm.Comm) ([]tensor, error) {
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
		if i := mismatch(got, x.want(c.Rank(), p)); i >= 0 {
			want := x.want(c.Rank(), p)
			tb.Fatalf("%v: part %d, row %d, column %d: got %v, want %v", x, p, i/got.cols, i%got.cols, float(got, i), float(want, i))
		}
		results = append(results, got)
		if !m.dst.whole.IsZero() && !(x.inPlace && x.kind == comm.Reduce) {
			m.dst.requireMargin(tb, c, m.lo, m.hi)
		}
		if in := x.input(c.Rank(), p); !x.inPlace && x.kind != comm.Broadcast {
			require.Equal(tb, -1, mismatch(download(tb, c, m.src.view.Slice(0, in.rows)), in), "%v: part %d: the source changed", x, p)
		}
	}
	return results, nil
}
