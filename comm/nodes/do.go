package nodes

import (
	"github.com/weftgo/weft/comm"
)

// call is an operation on its way through both worlds.
type call struct {
	c      *conn
	s      comm.Stream
	op     *comm.Op
	err    error        // the first; later steps are left out
	below  comm.Op      // of a step
	parts  [1]comm.Part // its tensor
	counts []int
	column []int

	gathered []int   // counts on the device, of all ranks
	words    []int32 // in which they came
}

// Do runs the steps of one operation.
func (c *conn) Do(s comm.Stream, op *comm.Op) error {
	op.Stats = comm.OpStats{}
	if c.closed.Load() {
		return comm.Errorf(op.Label(), c.rank, comm.Invalid, "the comm is closed")
	}
	x := &c.call
	x.c, x.s, x.op, x.err = c, c.on(s), op, nil
	switch {
	case op.Kind == comm.Barrier:
		x.inside(comm.Op{Kind: comm.Barrier})
		x.between(comm.Op{Kind: comm.Barrier})
		x.inside(comm.Op{Kind: comm.Barrier})
		return x.err
	case c.nodes == 1:
		x.step(c.in, *op)
		return x.err
	case c.ranks == 1:
		x.step(c.out, *op)
		return x.err
	case op.Kind == comm.Send || op.Kind == comm.Recv:
		x.message()
		return x.err
	case op.Kind == comm.AllToAllV:
		return comm.Errorf(op.Label(), c.rank, comm.Unavailable, "an alltoallv of several nodes has no two-level form here; use a driver over all ranks")
	}
	x.gathered = nil
	if _, ok := op.Send.Host(); !ok && !op.Send.IsZero() {
		if c.stream != nil {
			return comm.Errorf(op.Label(), c.rank, comm.Unavailable, "counts on a GPU do not cross between nodes; use comm.Host")
		}
		x.gatherCounts()
	}
	for i := range op.Parts {
		if x.err == nil {
			x.part(op.Parts[i])
		}
	}
	return x.err
}

// step runs an operation in a world below.
func (x *call) step(below *comm.Comm, op comm.Op) {
	if x.err != nil {
		return
	}
	x.below = op
	x.below.Tag = x.op.Tag
	if err := below.Do(x.s, &x.below); err != nil {
		x.err = x.c.settle(below, x.op.Label(), err)
	}
	st := x.below.Stats
	x.op.Stats.Launches += st.Launches
	x.op.Stats.SentBytes += st.SentBytes
	x.op.Stats.Wait += st.Wait
}

func (x *call) inside(op comm.Op, p ...comm.Part)  { x.one(x.c.in, op, p) }
func (x *call) between(op comm.Op, p ...comm.Part) { x.one(x.c.out, op, p) }

// one is a step of one tensor, or of none.
func (x *call) one(below *comm.Comm, op comm.Op, p []comm.Part) {
	if len(p) > 0 {
		x.parts[0] = p[0]
		op.Parts = x.parts[:]
	}
	x.step(below, op)
}

// message is a Send or Recv within a node or a column.
func (x *call) message() {
	c, op := x.c, *x.op
	node, local := op.Peer/c.ranks, op.Peer%c.ranks
	switch {
	case node == c.node:
		op.Peer = local
		x.inside(op)
	case local == c.local:
		op.Peer = node
		x.between(op)
	default:
		x.err = comm.Errorf(op.Label(), c.rank, comm.Unavailable, "rank %d is in another node (%d) and has another number there (%d); send through a rank of this node or column", op.Peer, node, local)
	}
}

// part runs the steps of one tensor.
func (x *call) part(p comm.Part) {
	c, op := x.c, x.op
	switch op.Kind {
	case comm.AllReduce:
		x.allReduce(p)
	case comm.Broadcast:
		node, local := op.Peer/c.ranks, op.Peer%c.ranks
		if local == c.local {
			x.between(comm.Op{Kind: comm.Broadcast, Peer: node}, p)
		}
		x.inside(comm.Op{Kind: comm.Broadcast, Peer: local}, p)
	case comm.Reduce:
		x.reduce(p)
	case comm.AllGather:
		x.gather(p, x.uniform(p.Src.Rows()))
	case comm.AllGatherV:
		x.gather(p, x.given())
	case comm.ReduceScatter:
		x.scatter(p, x.uniform(p.Dst.Rows()))
	case comm.ReduceScatterV:
		x.scatter(p, x.given())
	}
}

// uniform is the counts of ranks that all have as many rows.
func (x *call) uniform(rows int) []int {
	x.counts = x.counts[:0]
	for range x.c.nodes * x.c.ranks {
		x.counts = append(x.counts, rows)
	}
	return x.counts
}

// temporary is conn's; its error ends the call.
func (x *call) temporary(like comm.Buffer, rows int) comm.Buffer {
	if x.err != nil {
		return comm.Buffer{}
	}
	var b comm.Buffer
	b, x.err = x.c.temporary(like.DType(), rows, like.Cols())
	return b
}

// allReduce gives each rank of a node a share of the elements. Buffers without gaps whose size divides are cut into one long
// row for each rank, others by rows.
func (x *call) allReduce(p comm.Part) {
	c := x.c
	n := p.Src.Rows() * p.Src.Cols()
	if p.Src.Contiguous() && p.Dst.Contiguous() {
		rows, cols := n, 1
		if n%c.ranks == 0 && n > 0 {
			rows, cols = c.ranks, n/c.ranks
		}
		p = comm.Part{Dst: reshape(p.Dst, rows, cols), Src: reshape(p.Src, rows, cols)}
	}
	rows := p.Src.Rows()
	counts := x.counts[:0]
	for i := range c.ranks {
		counts = append(counts, rows*(i+1)/c.ranks-rows*i/c.ranks)
	}
	x.counts = counts
	share := x.temporary(p.Src, counts[c.local])
	if x.err != nil {
		return
	}
	x.inside(comm.Op{Kind: comm.ReduceScatterV, Reduce: x.op.Reduce, Send: comm.Host(counts)}, comm.Part{Dst: share, Src: p.Src})
	x.between(comm.Op{Kind: comm.AllReduce, Reduce: x.op.Reduce}, comm.Part{Dst: share, Src: share})
	x.inside(comm.Op{Kind: comm.AllGatherV, Send: comm.Host(counts)}, comm.Part{Dst: p.Dst, Src: share})
}

// reduce adds up in every node at the rank that has the root's number, then in that column.
func (x *call) reduce(p comm.Part) {
	c := x.c
	node, local := x.op.Peer/c.ranks, x.op.Peer%c.ranks
	partial := comm.Buffer{}
	if local == c.local {
		partial = x.temporary(p.Src, p.Src.Rows())
	}
	x.inside(comm.Op{Kind: comm.Reduce, Reduce: x.op.Reduce, Peer: local}, comm.Part{Dst: partial, Src: p.Src})
	if local == c.local {
		x.between(comm.Op{Kind: comm.Reduce, Reduce: x.op.Reduce, Peer: node}, comm.Part{Dst: p.Dst, Src: partial})
	}
}

// ofColumn returns the counts of this rank's column and their sum.
func (x *call) ofColumn(counts []int) (list []int, sum int) {
	c := x.c
	x.column = x.column[:0]
	for n := range c.nodes {
		rows := counts[n*c.ranks+c.local]
		x.column = append(x.column, rows)
		sum += rows
	}
	return x.column, sum
}

// eachNode calls fn with a node's counts, the rows of its ranks in the world's order, and this column's rows of that node in
// the column's order.
func (x *call) eachNode(counts []int, fn func(counts []int, lo, hi, first, last int)) {
	c, lo, first := x.c, 0, 0
	for n := range c.nodes {
		list := counts[n*c.ranks : (n+1)*c.ranks]
		hi := lo
		for _, v := range list {
			hi += v
		}
		last := first + list[c.local]
		if hi > lo {
			fn(list, lo, hi, first, last)
		}
		lo, first = hi, last
	}
}

// gather brings the column's rows here, then each node's together.
func (x *call) gather(p comm.Part, counts []int) {
	column, sum := x.ofColumn(counts)
	rows := x.temporary(p.Src, sum)
	if x.err != nil {
		return
	}
	x.between(comm.Op{Kind: comm.AllGatherV, Send: comm.Host(column)}, comm.Part{Dst: rows, Src: p.Src})
	x.eachNode(counts, func(list []int, lo, hi, first, last int) {
		x.inside(comm.Op{Kind: comm.AllGatherV, Send: comm.Host(list)}, comm.Part{Dst: p.Dst.Slice(lo, hi), Src: rows.Slice(first, last)})
	})
}

// scatter adds up each node's rows inside, then the column's.
func (x *call) scatter(p comm.Part, counts []int) {
	column, sum := x.ofColumn(counts)
	rows := x.temporary(p.Src, sum)
	if x.err != nil {
		return
	}
	x.eachNode(counts, func(list []int, lo, hi, first, last int) {
		x.inside(comm.Op{Kind: comm.ReduceScatterV, Reduce: x.op.Reduce, Send: comm.Host(list)}, comm.Part{Dst: rows.Slice(first, last), Src: p.Src.Slice(lo, hi)})
	})
	x.between(comm.Op{Kind: comm.ReduceScatterV, Reduce: x.op.Reduce, Send: comm.Host(column)}, comm.Part{Dst: p.Dst, Src: rows})
}
