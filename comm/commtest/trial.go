package commtest

import (
	"fmt"
	"slices"

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
func (x trial) want(i, part int, inputs []tensor) tensor {
	inputs = slices.Clone(inputs)
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
