package comm

import "fmt"

// validateOverlap checks that Dst and Src share no memory, except where the operation can work in place.
func (op *Op) validateOverlap(p *Part, c *Comm, send *rowRule) error {
	if op.Kind == Broadcast || !overlap(&p.Dst, &p.Src) {
		return nil
	}
	where := "they are one buffer"
	switch op.Kind {
	case AllReduce, Reduce:
		if samePlace(p.Dst, p.Src) {
			return nil
		}
	case AllGather:
		where = "src is this rank's part of dst"
		if samePlace(p.Dst.Slice(c.rank*p.Src.rows, (c.rank+1)*p.Src.rows), p.Src) {
			return nil
		}
	case ReduceScatter:
		where = "dst is this rank's part of src"
		if samePlace(p.Src.Slice(c.rank*p.Dst.rows, (c.rank+1)*p.Dst.rows), p.Dst) {
			return nil
		}
	case AllGatherV:
		where = "src is this rank's part of dst and the counts are the host's"
		if send.host && samePlace(p.Dst.Slice(send.before, send.before+send.own), p.Src) {
			return nil
		}
	case ReduceScatterV:
		where = "dst is this rank's part of src and the counts are the host's"
		if send.host && samePlace(p.Src.Slice(send.before, send.before+send.own), p.Dst) {
			return nil
		}
	default:
		return fmt.Errorf("dst %v and src %v overlap", p.Dst, p.Src)
	}
	return fmt.Errorf("dst %v and src %v overlap; they may only where %s", p.Dst, p.Src, where)
}

// samePlace reports whether the rows of both start at one address and lie equally far apart.
func samePlace(a, b Buffer) bool {
	return a.Addr() == b.Addr() && (a.stride == b.stride || a.rows <= 1 && b.rows <= 1)
}

// Overlaps reports whether two buffers share an element. Columns of one matrix that lie side by side do not.
func (b Buffer) Overlaps(o Buffer) bool { return overlap(&b, &o) }

// overlap reports whether two buffers of one element type share memory. Columns of one matrix that lie side by side
// do not.
func overlap(a, b *Buffer) bool {
	if a.rows == 0 || b.rows == 0 || a.device != b.device {
		return false
	}
	size := uintptr(a.dtype.Size())
	if a.Addr() > b.Addr() {
		a, b = b, a
	}
	gap := b.Addr() - a.Addr()
	if gap >= uintptr((a.rows-1)*a.stride+a.cols)*size {
		return false
	}
	if a.stride != b.stride {
		return true
	}
	pitch := uintptr(a.stride) * size
	column := gap % pitch // where b's rows begin within a's
	return column < uintptr(a.cols)*size || column+uintptr(b.cols)*size > pitch
}
