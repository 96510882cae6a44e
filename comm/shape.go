package comm

import (
	"slices"
	"sync/atomic"
	"time"
)

// shape is the last valid call of one kind: what validation and drivers read of it. Most programs repeat their calls, and a
// call that differs from the last in its addresses only needs no second look at the rest.
type shape struct {
	id                     uint64 // Op.Shape; 0 before the first
	reduce                 ReduceOp
	peer                   int
	tag                    uint64
	dst, src               Buffer // without memory
	dstAddr, srcAddr       uintptr
	sendHost, recvHost     bool
	sendCounts, recvCounts []int
	rule                   rowRule
	took                   time.Duration // by the last call that was timed, but for its wait
	skip                   int           // calls that are not timed
}

// Each Comm has shapeBits for numbers of its own, so that a Conn under two Comms sees no shape twice.
const shapeBits = 36

var numComms atomic.Uint64

// check validates op and sets op.Shape.
func (c *Comm) check(op *Op) error {
	op.Shape = 0
	if op.Kind == Barrier && op.Tag == 0 {
		op.Shape = 1 // there is only one
		return nil
	}
	if op.Kind >= NumOpKinds || op.Kind == Barrier || len(op.Parts) != 1 {
		return op.validate(c)
	}
	k, p := &c.shapes[op.Kind], &op.Parts[0]
	if k.matches(op, p) {
		if dst, src := p.Dst.Addr(), p.Src.Addr(); dst != k.dstAddr || src != k.srcAddr {
			if err := op.validateOverlap(p, c, &k.rule); err != nil {
				return err
			}
			k.dstAddr, k.srcAddr = dst, src
		}
		op.Shape = k.id
		return nil
	}
	if err := op.validate(c); err != nil {
		return err
	}
	c.remember(k, op, p)
	return nil
}

// matches reports whether op differs from the shape in addresses only.
func (k *shape) matches(op *Op, p *Part) bool {
	return k.id != 0 && k.reduce == op.Reduce && k.peer == op.Peer && k.tag == op.Tag &&
		sameView(&k.dst, &p.Dst) && sameView(&k.src, &p.Src) &&
		k.sendHost == op.Send.isHost && k.recvHost == op.Recv.isHost &&
		slices.Equal(k.sendCounts, op.Send.host) && slices.Equal(k.recvCounts, op.Recv.host)
}

func sameView(a, b *Buffer) bool {
	return a.rows == b.rows && a.cols == b.cols && a.stride == b.stride && a.dtype == b.dtype && a.device == b.device && b.fault == ""
}

// remember makes a valid op the shape that the next call is compared with. Counts on the device are not the host's to compare.
func (c *Comm) remember(k *shape, op *Op, p *Part) {
	k.id, k.skip = 0, 0
	if op.Kind == AllGatherV || op.Kind == ReduceScatterV || op.Kind == AllToAllV {
		if !op.Send.isHost || op.Kind == AllToAllV && !op.Recv.isHost {
			return
		}
		k.rule, _ = op.countRows("counts", &op.Send, c, false)
	}
	if op.Kind == Send || op.Kind == Recv || op.Kind == Reduce {
		return // one of the buffers may not be looked at
	}
	c.lastShape++
	k.id, k.reduce, k.peer, k.tag = c.lastShape, op.Reduce, op.Peer, op.Tag
	k.dst, k.src, k.dstAddr, k.srcAddr = p.Dst, p.Src, p.Dst.Addr(), p.Src.Addr()
	k.dst.ptr, k.src.ptr = nil, nil
	k.sendHost, k.recvHost = op.Send.isHost, op.Recv.isHost
	k.sendCounts, k.recvCounts = append(k.sendCounts[:0], op.Send.host...), append(k.recvCounts[:0], op.Recv.host...)
	op.Shape = k.id
}
