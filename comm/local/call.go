package local

import (
	"fmt"

	"github.com/weftgo/weft/comm"
)

// call is what one rank publishes. The others read it, and the caller's memory behind it, only when all ranks have come
// and before the last of them has finished; until then no rank returns.
type call struct {
	op         *comm.Op
	send, recv []int // rows to each rank, rows from each rank, as far as the operation has them
	own        []int // memory for counts that were on the device
	signature  uint64
	pos, size  int // whose call it is, and of how many
	turn       int // which of its seat's calls it is
	box        *box
	led        bool // the meeting is: nothing is packed

	split      bool // a Split; op is the empty one
	color, key int
}

// publish notes the operation. Counts on the device are read here, by the rank that owns them.
func (c *call) publish(op *comm.Op) error {
	c.op, c.split, c.send, c.recv = op, false, nil, nil
	switch op.Kind {
	case comm.Send, comm.Recv:
		c.signature = message(op.Parts, op.Kind == comm.Recv)
	case comm.AllGatherV, comm.ReduceScatterV, comm.AllToAllV:
		c.signature = op.Signature()
		if err := c.publishCounts(op); err != nil {
			return err
		}
	default:
		c.signature = op.Signature()
	}
	c.fill()
	return nil
}

func (c *call) publishCounts(op *comm.Op) (err error) {
	c.recv, _ = op.Recv.Host()
	host, ok := op.Send.Host()
	if ok {
		c.send = host
		return nil
	}
	own, _, _ := op.Send.Device()
	values, err := comm.View[int32](own)
	c.own = c.own[:0]
	for _, v := range values {
		c.own = append(c.own, int(v))
	}
	c.send = c.own
	return err
}

// publishSplit makes the call a Split.
func (c *call) publishSplit(color, key int) {
	c.op, c.split, c.color, c.key, c.signature = &emptyOp, true, color, key, 0
	c.fill()
}

// emptyOp stands for the operation of a Split.
var emptyOp = comm.Op{Kind: comm.Barrier}

// forget drops the references to the caller's memory.
func (c *call) forget() {
	c.op, c.send, c.recv = nil, nil, nil
	if c.box.state == direct {
		c.box.src, c.box.dst = nil, nil
	}
}

func (c *call) label() string {
	if c.split {
		return "split"
	}
	return c.op.Label()
}

// String describes the call for messages.
func (c *call) String() string {
	if c.split {
		return fmt.Sprintf("split color %d key %d", c.color, c.key)
	}
	return c.op.String()
}

// differs reports whether two ranks are in different calls.
func (c *call) differs(d *call) bool {
	return c.split != d.split || c.signature != d.signature
}

// fault is why a call failed on all ranks of a meeting.
type fault struct {
	code comm.Code
	a, b int // the ranks of the world it is about; equal when it is one
	err  error
}

// of returns the error of one rank's call.
func (f *fault) of(rank int, c *call) error {
	peer := f.a
	if peer == rank {
		peer = f.b
	}
	if peer == rank {
		peer = comm.NoPeer
	}
	return &comm.Error{Op: c.label(), Rank: rank, Peer: peer, Code: f.code, Err: f.err}
}
