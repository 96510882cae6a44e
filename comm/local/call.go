package local

import (
	"fmt"

	"github.com/weftgo/weft/comm"
)

// call is what one rank publishes. It is a copy: whatever the caller does with its Op and slices after an early return,
// the others read this.
type call struct {
	op         comm.Op
	parts      []comm.Part
	send, recv []int // rows to each rank, rows from each rank, as far as the operation has them
	signature  uint64

	split      bool // a Split and not an Op
	color, key int
}

// publish copies op. Counts on the device are read here, by the rank that owns them.
func (c *call) publish(op *comm.Op) error {
	c.split = false
	c.op = *op
	c.parts = append(c.parts[:0], op.Parts...)
	c.op.Parts = c.parts
	c.send, c.recv = c.send[:0], c.recv[:0]
	var err error
	switch op.Kind {
	case comm.AllGatherV, comm.ReduceScatterV:
		c.send, c.op.Send, err = rows(c.send, op.Send)
	case comm.AllToAllV:
		if c.send, c.op.Send, err = rows(c.send, op.Send); err != nil {
			return err
		}
		if host, ok := op.Recv.Host(); ok {
			c.recv = append(c.recv, host...)
			c.op.Recv = comm.Host(c.recv)
		}
	}
	c.signature = op.Signature()
	return err
}

// rows copies counts to n and returns them with the Counts that describe the copy.
func rows(n []int, counts comm.Counts) ([]int, comm.Counts, error) {
	if host, ok := counts.Host(); ok {
		n = append(n, host...)
		return n, comm.Host(n), nil
	}
	own, _, _ := counts.Device()
	values, err := comm.View[int32](own)
	for _, v := range values {
		n = append(n, int(v))
	}
	return n, counts, err
}

// publishSplit makes the call a Split.
func (c *call) publishSplit(color, key int) {
	c.op = comm.Op{}
	c.parts, c.send, c.recv = c.parts[:0], c.send[:0], c.recv[:0]
	c.split, c.color, c.key = true, color, key
	c.signature = 0
}

// forget drops the references to the caller's memory.
func (c *call) forget() {
	clear(c.parts)
	c.parts = c.parts[:0]
	c.op = comm.Op{Kind: c.op.Kind}
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
