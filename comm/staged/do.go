package staged

import (
	"errors"
	"fmt"
	"math"

	"github.com/weftgo/weft/comm"
)

// Do runs one operation on the device and waits for it.
func (c *conn) Do(_ comm.Stream, op *comm.Op) error {
	op.Stats = comm.OpStats{}
	if c.closed.Load() {
		return comm.Errorf(op.Label(), c.world, comm.Invalid, "the comm is closed")
	}
	if err := c.run(op); err != nil {
		return c.explain(op, err)
	}
	return nil
}

// explain gives an error of the driver the label of the call: its copies and waits are part of it.
func (c *conn) explain(op *comm.Op, err error) error {
	e := (*comm.Error)(nil)
	if !errors.As(err, &e) {
		return &comm.Error{Op: op.Label(), Rank: c.world, Peer: comm.NoPeer, Code: comm.Internal, Err: err}
	}
	switch e.Op {
	case "wait", "copy":
		again := *e
		again.Op = op.Label()
		return &again
	case "alloc", "free":
		return &comm.Error{Op: op.Label(), Rank: c.world, Peer: comm.NoPeer, Code: e.Code, Err: fmt.Errorf("its workspace on %v: %w", c.in.Device(), err)}
	}
	return err
}

func (c *conn) run(op *comm.Op) error {
	bytes := 0
	for i := range op.Parts {
		n, _ := c.common(op, &op.Parts[i])
		if n < 0 {
			bytes = 0
			break
		}
		bytes += n + 2*align
	}
	if bytes <= c.limit {
		return c.once(op, op.Parts, &window{right: maxColumns}, op.Tag)
	}
	// Ranks whose calls differ may cut them into equal pieces: the tag keeps those apart.
	tag := op.Signature() | 1
	for i := range op.Parts {
		if err := c.pieces(op, i, tag); err != nil {
			return err
		}
	}
	return nil
}

// maxColumns is more than a buffer has.
const maxColumns = math.MaxInt

// pieces runs one part in windows that fit the workspace. All ranks make the same.
func (c *conn) pieces(op *comm.Op, i int, tag uint64) error {
	p := &op.Parts[i]
	_, rows := c.common(op, p)
	segment := p.Src.Rows()
	if op.Kind == comm.ReduceScatter {
		segment = p.Dst.Rows()
	}
	c.one[0] = *p
	cols, size, room := p.Src.Cols(), p.Src.DType().Size(), max(c.limit-4*align, 1)
	if op.Kind == comm.AllGatherV || op.Kind == comm.ReduceScatterV { // their rows are not cut
		return c.columns(op, window{}, cols, room/max(1, rows*size), tag)
	}
	if segment == 0 {
		return nil
	}
	perRow := rows / segment * size
	step := room / (perRow * cols)
	for lo := 0; lo < segment; lo += max(1, step) {
		w := window{cut: true, lo: lo, hi: min(segment, lo+max(1, step))}
		width := cols
		if step == 0 { // not one row fits
			width = room / perRow
		}
		if err := c.columns(op, w, cols, width, tag); err != nil {
			return err
		}
	}
	return nil
}

// columns runs the rows of w, so many columns at a time.
func (c *conn) columns(op *comm.Op, w window, cols, step int, tag uint64) error {
	for ; w.left < cols; w.left = w.right {
		w.right = min(cols, w.left+max(1, step))
		if err := c.once(op, c.one[:], &w, tag); err != nil {
			return err
		}
	}
	return nil
}
