package comm

import (
	"fmt"
	"strings"
	"time"
)

// OpKind names a collective.
type OpKind uint8

// The collectives.
const (
	AllReduce OpKind = iota
	AllGather
	AllGatherV
	ReduceScatter
	ReduceScatterV
	AllToAllV
	Broadcast
	Reduce
	Send
	Recv
	Barrier
	NumOpKinds // how many there are
)

var kindNames = [NumOpKinds]string{"all_reduce", "all_gather", "all_gatherv", "reduce_scatter", "reduce_scatterv",
	"alltoallv", "broadcast", "reduce", "send", "recv", "barrier"}

// String returns the field's name, such as "all_gatherv".
func (k OpKind) String() string {
	if k >= NumOpKinds {
		return fmt.Sprintf("op(%d)", uint8(k))
	}
	return kindNames[k]
}

// Reduces reports whether the operation adds (or otherwise reduces) values.
func (k OpKind) Reduces() bool {
	return k == AllReduce || k == ReduceScatter || k == ReduceScatterV || k == Reduce
}

// Rooted reports whether Op.Peer is a root that all ranks must agree on.
func (k OpKind) Rooted() bool { return k == Broadcast || k == Reduce }

// ReduceOp says how values of the ranks become one.
type ReduceOp uint8

// The reductions. Avg is Sum divided by the number of ranks in fp32 before the one rounding; it needs a floating-point type.
const (
	Sum ReduceOp = iota
	Prod
	Min
	Max
	Avg
	numReduceOps
)

// String returns "sum", "prod", "min", "max" or "avg".
func (r ReduceOp) String() string {
	if r >= numReduceOps {
		return fmt.Sprintf("reduce(%d)", uint8(r))
	}
	return [...]string{"sum", "prod", "min", "max", "avg"}[r]
}

// Part is one tensor of a collective: what comes out and what goes in. In place is Dst at Src's address where the
// operation allows it (see the methods of Comm).
type Part struct{ Dst, Src Buffer }

// Op is one call of a collective, as a Conn sees it. Comm.Do has validated it.
type Op struct {
	Kind   OpKind
	Reduce ReduceOp
	Peer   int    // root of Broadcast and Reduce; the other rank of Send and Recv
	Parts  []Part // one or more; none for Barrier
	Send   Counts // rows per rank: of AllGatherV and ReduceScatterV, and what AllToAllV sends
	Recv   Counts // what AllToAllV receives
	Tag    uint64 // what else all ranks must give alike, such as which of two equally shaped results this is about
	Seq    uint64 // number of this operation on its Comm, from 1
	Shape  uint64 // set by Comm.Do: calls of one Kind with one Shape, on one rank, differ in Seq and addresses only; 0 if not known
	Stats  OpStats
}

// OpStats is what a driver reports of one operation.
type OpStats struct {
	Launches  int           // kernel launches; 1 for a call that the CPU driver ran
	SentBytes int64         // bytes that this rank's work moved between two different ranks
	Wait      time.Duration // time spent waiting for other ranks, part of the call's time (CPU driver)
}

// Label returns the short name that errors carry, such as "all_gatherv #7".
func (op *Op) Label() string { return fmt.Sprintf("%v #%d", op.Kind, op.Seq) }

// String returns a line for messages, such as "all_gatherv #7 bf16[3, 192] counts [3 0 5]".
func (op *Op) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v #%d", op.Kind, op.Seq)
	if op.Kind.Reduces() {
		fmt.Fprintf(&b, " %v", op.Reduce)
	}
	switch {
	case op.Kind.Rooted():
		fmt.Fprintf(&b, " root %d", op.Peer)
	case op.Kind == Send:
		fmt.Fprintf(&b, " to %d", op.Peer)
	case op.Kind == Recv:
		fmt.Fprintf(&b, " from %d", op.Peer)
	}
	for _, p := range op.Parts {
		shape := p.Src
		if op.Kind == Recv || shape.IsZero() {
			shape = p.Dst
		}
		fmt.Fprintf(&b, " %v[%d, %d]", shape.DType(), shape.Rows(), shape.Cols())
	}
	if n, ok := op.Send.Host(); ok {
		fmt.Fprintf(&b, " counts %v", n)
	} else if !op.Send.IsZero() {
		fmt.Fprintf(&b, " counts on the device, max %d", op.Send.max)
	}
	if n, ok := op.Recv.Host(); ok {
		fmt.Fprintf(&b, " from %v", n)
	}
	if op.Tag != 0 {
		fmt.Fprintf(&b, " tag %d", op.Tag)
	}
	return b.String()
}

// Signature hashes what all ranks must agree on: kind, reduction, root, tag, number of parts, their types and columns, rows
// where they must be equal, and of the gathering and scattering forms the host counts, or the max of device counts.
// Ranks whose signatures differ are in different calls. Send, Recv and the counts of AllToAllV are matched by pair instead.
func (op *Op) Signature() uint64 {
	h := uint64(14695981039346656037)
	mix := func(x int) { h = (h ^ uint64(x)) * 1099511628211 }
	mix(int(op.Kind))
	if op.Kind.Reduces() {
		mix(int(op.Reduce) + 1)
	}
	if op.Kind.Rooted() {
		mix(op.Peer)
	}
	mix(int(op.Tag))
	mix(len(op.Parts))
	for i := range op.Parts {
		b := &op.Parts[i].Src
		if op.Kind == Recv || b.IsZero() {
			b = &op.Parts[i].Dst
		}
		mix(int(b.dtype))
		mix(b.cols)
		switch op.Kind {
		case AllReduce, AllGather, ReduceScatter, Broadcast, Reduce:
			mix(b.rows)
		}
	}
	if op.Kind == AllGatherV || op.Kind == ReduceScatterV {
		for _, n := range op.Send.host {
			mix(n)
		}
		if !op.Send.isHost {
			mix(-1)
			mix(op.Send.max)
		}
	}
	return h
}
