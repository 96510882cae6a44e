package comm

import (
	"fmt"
	"math"

	"github.com/weftgo/weft/dtype"
)

// validate checks what one rank can know: shapes, types, devices, counts, roots.
func (op *Op) validate(c *Comm) error {
	if op.Kind >= NumOpKinds {
		return fmt.Errorf("unknown operation %v", op.Kind)
	}
	if op.Kind == Barrier {
		return nil
	}
	if len(op.Parts) == 0 {
		return fmt.Errorf("no tensors given")
	}
	if (op.Kind.Rooted() || op.Kind == Send || op.Kind == Recv) && (op.Peer < 0 || op.Peer >= c.size) {
		return fmt.Errorf("rank %d is not in [0, %d)", op.Peer, c.size)
	}
	if (op.Kind == Send || op.Kind == Recv) && op.Peer == c.rank {
		return fmt.Errorf("rank %d exchanges with itself; use Copy", op.Peer)
	}
	if op.Reduce >= numReduceOps {
		return fmt.Errorf("unknown reduction %v", op.Reduce)
	}
	sendRows, err := op.countRows("counts", &op.Send, c, false)
	if err != nil {
		return err
	}
	recvRows := rowRule{}
	if op.Kind == AllToAllV {
		if recvRows, err = op.countRows("receive counts", &op.Recv, c, true); err != nil {
			return err
		}
	}
	for i := range op.Parts {
		if err := op.validatePart(&op.Parts[i], c, &sendRows, &recvRows); err != nil {
			if len(op.Parts) > 1 {
				return fmt.Errorf("part %d: %w", i, err)
			}
			return err
		}
	}
	return nil
}

// rowRule is what counts say of a buffer's rows.
type rowRule struct {
	own, before, sum int // this rank's entry; those of the ranks before it; all entries (host counts)
	most             int // rows a destination must hold (device counts)
	host             bool
}

func (op *Op) countRows(what string, n *Counts, c *Comm, recv bool) (rowRule, error) {
	switch op.Kind {
	case AllGatherV, ReduceScatterV, AllToAllV:
	default:
		return rowRule{}, nil
	}
	if n.isHost {
		sum, err := total(n.host, c.size)
		if err != nil {
			return rowRule{}, fmt.Errorf("%s: %w", what, err)
		}
		rule := rowRule{own: n.host[c.rank], sum: sum, host: true}
		for _, x := range n.host[:c.rank] {
			rule.before += x
		}
		return rule, nil
	}
	if n.IsZero() {
		return rowRule{}, fmt.Errorf("no %s given; use comm.Host or comm.OnDevice", what)
	}
	if n.max < 0 || n.max > math.MaxInt32 {
		return rowRule{}, fmt.Errorf("%s: max %d is not in [0, %d]", what, n.max, math.MaxInt32)
	}
	ownCols := 1
	if op.Kind == AllToAllV {
		ownCols = c.size
	}
	if !(op.Kind == AllToAllV && recv) {
		if err := countBuffer(n.own, ownCols, c); err != nil {
			return rowRule{}, fmt.Errorf("%s: own: %w", what, err)
		}
	}
	if !(op.Kind == AllToAllV && !recv) {
		if err := countBuffer(n.all, c.size, c); err != nil {
			return rowRule{}, fmt.Errorf("%s: all: %w", what, err)
		}
	}
	return rowRule{most: n.max * c.size}, nil
}

func countBuffer(b Buffer, n int, c *Comm) error {
	if err := b.Validate(); err != nil {
		return err
	}
	if b.dtype != dtype.I32 || b.rows*b.cols != n || !b.Contiguous() {
		return fmt.Errorf("%v where i32[1, %d] is needed", b, n)
	}
	return onDevice(b, c)
}

func onDevice(b Buffer, c *Comm) error {
	if dev := c.device; b.device.Kind != dev.Kind || dev.Kind == CUDA && b.device != dev {
		return fmt.Errorf("%v is not on this rank's device %v", b, dev)
	}
	return nil
}

func (op *Op) validatePart(p *Part, c *Comm, send, recv *rowRule) error {
	needDst := op.Kind != Send && !(op.Kind == Reduce && c.rank != op.Peer)
	needSrc := op.Kind != Recv
	if needSrc {
		if err := usable("src", &p.Src, c); err != nil {
			return err
		}
	}
	if needDst {
		if err := usable("dst", &p.Dst, c); err != nil {
			return err
		}
	}
	if needSrc && needDst && (p.Dst.dtype != p.Src.dtype || p.Dst.cols != p.Src.cols) {
		return fmt.Errorf("dst %v and src %v differ in type or columns", p.Dst, p.Src)
	}
	if t := p.Src.dtype; op.Kind.Reduces() && op.Reduce == Avg && !t.IsFloat() {
		return fmt.Errorf("avg of %v: it needs a floating-point type", t)
	}
	if err := op.validateRows(p, c, send, recv); err != nil {
		return err
	}
	if needSrc && needDst {
		return op.validateOverlap(p, c, send)
	}
	return nil
}

func usable(name string, b *Buffer, c *Comm) error {
	if b.fault == "" && b.dtype.Valid() && b.rows >= 0 && b.cols > 0 && b.stride >= b.cols && b.device == c.device {
		return nil // as nearly always; what follows says what is wrong, or allows another index of the CPU
	}
	if err := b.Validate(); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if err := onDevice(*b, c); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

func (op *Op) validateRows(p *Part, c *Comm, send, recv *rowRule) error {
	d, s := p.Dst.rows, p.Src.rows
	switch op.Kind {
	case AllReduce, Broadcast:
		if d != s {
			return fmt.Errorf("dst has %d rows, src %d", d, s)
		}
	case Reduce:
		if c.rank == op.Peer && d != s {
			return fmt.Errorf("dst has %d rows, src %d", d, s)
		}
	case AllGather:
		if d != s*c.size {
			return fmt.Errorf("dst has %d rows; %d ranks x %d rows are %d", d, c.size, s, s*c.size)
		}
	case ReduceScatter:
		if s != d*c.size {
			return fmt.Errorf("src has %d rows; %d ranks x %d rows are %d", s, c.size, d, d*c.size)
		}
	case AllGatherV:
		if send.host {
			return fits(s, send.own, d, send.sum)
		}
		return holds("dst", d, send.most)
	case ReduceScatterV:
		if send.host {
			return fits(s, send.sum, d, send.own)
		}
		return nil
	case AllToAllV:
		if send.host && s < send.sum {
			return fmt.Errorf("src has %d rows, the counts say %d", s, send.sum)
		}
		if recv.host {
			return holds("dst", d, recv.sum)
		}
		return holds("dst", d, recv.most)
	}
	return nil
}

func fits(s, needSrc, d, needDst int) error {
	if s < needSrc {
		return fmt.Errorf("src has %d rows, the counts say %d", s, needSrc)
	}
	return holds("dst", d, needDst)
}

func holds(name string, have, need int) error {
	if have < need {
		return fmt.Errorf("%s has %d rows, the counts need %d", name, have, need)
	}
	return nil
}
