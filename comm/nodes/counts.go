package nodes

import (
	"fmt"

	"github.com/weftgo/weft/comm"
)

// given is the counts of an operation of ragged rows.
func (x *call) given() []int {
	if x.gathered != nil {
		return x.gathered
	}
	counts, _ := x.op.Send.Host()
	return counts
}

// gatherCounts tells all ranks what each has, between nodes and then inside: both worlds below then get counts of the host. A count
// that a rank cannot have is an Invalid error on all.
func (x *call) gatherCounts() {
	c := x.c
	own, all, most := x.op.Send.Device()
	size := c.nodes * c.ranks
	if len(x.words) == 0 {
		x.words = make([]int32, 2*(1+c.nodes+size))
	}
	mine, column, each := x.words[:2], x.words[2:2+2*c.nodes], x.words[2+2*c.nodes:] // [2]; [nodes, 2]; [ranks, nodes, 2]
	mine[0], mine[1] = comm.Row[int32](own, 0)[0], int32(x.room(most))
	x.between(comm.Op{Kind: comm.AllGather}, comm.Part{Dst: comm.Of(column, 2), Src: comm.Of(mine, 2)})
	x.inside(comm.Op{Kind: comm.AllGather}, comm.Part{Dst: comm.Of(each, 2*c.nodes), Src: comm.Of(column, 2*c.nodes)})
	if x.err != nil {
		return
	}
	x.gathered = x.counts[:0]
	for r := range size {
		at := 2 * (r%c.ranks*c.nodes + r/c.ranks)
		n, room := int(each[at]), int(each[at+1])
		switch {
		case n < 0 || n > most:
			x.err = x.badCount(r, fmt.Errorf("rank %d: own count %d is not in [0, max %d]", r, n, most))
			return
		case n > room:
			x.err = x.badCount(r, fmt.Errorf("rank %d: own count %d exceeds its %d rows", r, n, room))
			return
		}
		x.gathered = append(x.gathered, n)
	}
	x.counts = x.gathered
	if out, err := comm.View[int32](all); err == nil {
		for r, n := range x.gathered {
			out[r] = int32(n)
		}
	}
}

// room is the rows that this rank's own part of every tensor has, or max.
func (x *call) room(most int) int {
	for _, p := range x.op.Parts {
		own := p.Src
		if x.op.Kind == comm.ReduceScatterV {
			own = p.Dst
		}
		most = min(most, own.Rows())
	}
	return most
}

func (x *call) badCount(rank int, why error) error {
	e := &comm.Error{Op: x.op.Label(), Rank: x.c.rank, Peer: rank, Code: comm.Invalid, Err: why}
	if rank == x.c.rank {
		e.Peer = comm.NoPeer
	}
	return e
}
