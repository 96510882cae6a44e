package local

import (
	"math"
	"sync/atomic"
	"unsafe"

	"github.com/weftgo/weft/comm"
)

// box is what the other ranks need of a usual call, in a few cache lines that they fetch at once. A call whose bytes fit is
// packed: the others read its input here and never touch the caller's memory, so the first meeting is all it needs. A
// larger call of one dense tensor is direct: the box has the addresses. Anything else is read through call.op.
//
// Its lines are read by all: they hold nothing that a call changes later. So a packed box keeps the caller's memory alive until
// the rank's call after the next.
//
// A rank may use a box only as all do: packed if all are packed, direct if all are direct or packed.
type box struct {
	call      atomic.Uint64 // number of the call it is of, stored last; 0 if the rank took back that it had come
	signature uint64
	src, dst  unsafe.Pointer
	state     uint32
	_         [4]byte
	payload   [payloadBytes]byte // the first 24 bytes are in the line of the words above; of alltoallv the counts come first
}

// States of a box, each better than the one before.
const (
	opaque uint32 = iota
	direct
	packed
)

// payloadBytes is the most that is packed: above it, a second meeting is cheaper than the copies. See BenchmarkSmall.
const payloadBytes = 984

// firstLine is the bytes of a payload in the line of the words before it.
const firstLine = 24

// boxes are the two boxes of a seat. The runtime puts eight bytes before an object of this size: each box begins at a cache line.
type boxes struct {
	_    [56]byte
	b    [2]box
	done word
	away word
}

// maxBoxed is the most ranks whose counts an alltoallv carries in the box.
const maxBoxed = 16

// fill makes the box of a published call.
func (c *call) fill() {
	b, op := c.box, c.op
	b.signature, b.state, b.src, b.dst = c.signature, opaque, nil, nil
	if c.split {
		return
	}
	at := 0
	switch op.Kind {
	case comm.AllGatherV, comm.ReduceScatterV:
		if _, host := op.Send.Host(); !host {
			return
		}
	case comm.AllToAllV:
		_, host := op.Send.Host()
		if _, recvHost := op.Recv.Host(); !host || !recvHost || c.size > maxBoxed {
			return
		}
		if !b.putCounts(c.send, c.recv) {
			return
		}
		at = countBytes(c.size)
	}
	b.state = packed
	for i := range op.Parts {
		p := &op.Parts[i]
		src, dst := c.rows(p)
		if !p.Src.Contiguous() || !p.Dst.Contiguous() || p.Src.Rows() < src || p.Dst.Rows() < dst {
			b.state = opaque // the last two are bugs of Comm.Do, and reported as panics are
			return
		}
		size := int(rowBytes(p.Src)) * src
		if len(op.Parts) == 1 {
			at = begin(at, size)
		}
		if b.state == packed && at+size <= payloadBytes && !c.led {
			copy(b.payload[at:], p.Src.Bytes()[:size])
			at = aligned(at + size)
			continue
		}
		if b.state = opaque; len(op.Parts) > 1 {
			return
		}
		b.state = direct
	}
	if len(op.Parts) == 1 { // also if packed: another rank's call may be too large for that
		b.point(&op.Parts[0])
	}
}

// point sets the addresses.
func (b *box) point(p *comm.Part) { b.src, b.dst = p.Src.Pointer(), p.Dst.Pointer() }

func (b *box) srcAt(lo, hi int) []byte { return bytesAt(b.src, lo, hi) }
func (b *box) dstAt(lo, hi int) []byte { return bytesAt(b.dst, lo, hi) }

// bytesAt returns bytes [lo, hi) from an address on. Of none it makes no pointer: it could be the end of an allocation.
func bytesAt(p unsafe.Pointer, lo, hi int) []byte {
	if lo == hi {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Add(p, lo)), hi-lo)
}

// counts views the beginning of the payload as n numbers.
func (b *box) counts(n int) []int32 {
	return unsafe.Slice((*int32)(unsafe.Pointer(&b.payload)), len(b.payload)/4)[:n]
}

// putCounts begins the payload with counts. It reports false if one is too large.
func (b *box) putCounts(send, recv []int) bool {
	counts := b.counts(len(send) + len(recv))
	for i, n := range send {
		if n > math.MaxInt32 {
			return false
		}
		counts[i] = int32(n)
	}
	for i, n := range recv {
		if n > math.MaxInt32 {
			return false
		}
		counts[len(send)+i] = int32(n)
	}
	return true
}

// countBytes is the room that the counts of an alltoallv take.
func countBytes(size int) int { return 8 * size }

// begin returns where in the payload size bytes of a call of one part begin, after head bytes of counts: at once if they fit
// the first line, else with a line.
func begin(head, size int) int {
	if head+size <= firstLine {
		return head
	}
	return firstLine + (max(head-firstLine, 0)+lineBytes-1)/lineBytes*lineBytes
}

// aligned rounds up to what every element type may begin at.
func aligned(n int) int { return (n + 7) &^ 7 }

// rows returns the rows that a rank gives, and those that it gets, of a part.
func (c *call) rows(p *comm.Part) (src, dst int) {
	switch n := p.Src.Rows(); c.op.Kind {
	case comm.AllReduce:
		return n, n
	case comm.Reduce:
		if c.pos == c.op.Peer {
			return n, n
		}
		return n, 0
	case comm.Broadcast:
		if c.pos == c.op.Peer {
			return n, 0
		}
		return 0, n
	case comm.AllGather:
		return n, n * c.size
	case comm.ReduceScatter:
		return n, n / c.size
	case comm.AllGatherV:
		return c.send[c.pos], sum(c.send)
	case comm.ReduceScatterV:
		return sum(c.send), c.send[c.pos]
	case comm.AllToAllV:
		return sum(c.send), sum(c.recv)
	case comm.Send:
		return n, 0
	}
	return 0, p.Dst.Rows() // Recv
}

func sum[T int | int32](x []T) (s int) {
	for _, v := range x {
		s += int(v)
	}
	return s
}

// agreed returns the state in which all boxes of a call can be used; opaque too when the calls do not match.
func (m *meeting) agreed(turn int, c *call) uint32 {
	state := c.box.state
	for _, b := range m.boxes[turn] {
		if b.signature != c.box.signature {
			return opaque
		}
		state = min(state, b.state)
	}
	if state == direct && len(c.op.Parts) != 1 {
		return opaque
	}
	if state != opaque && c.op.Kind == comm.AllToAllV && !m.countsMatch(turn) {
		return opaque
	}
	return state
}

// countsMatch reports whether what each rank sends is what the other expects.
func (m *meeting) countsMatch(turn int) bool {
	size := len(m.seats)
	for i := range size {
		send := m.boxes[turn][i].counts(size)
		for j, n := range send {
			if m.boxes[turn][j].counts(2 * size)[size+i] != n {
				return false
			}
		}
	}
	return true
}

// message hashes what both ends of a message must agree on.
func message(parts []comm.Part, recv bool) uint64 {
	h := uint64(len(parts))
	for i := range parts {
		b := &parts[i].Src
		if recv {
			b = &parts[i].Dst
		}
		for _, v := range [...]int{b.Rows(), b.Cols(), int(b.DType())} {
			h = (h ^ uint64(v)) * 1099511628211
		}
	}
	return h
}

// unpack does this rank's part of a packed call from the boxes of all.
func (m *meeting) unpack(turn, pos int) {
	s := &m.seats[pos]
	c := &s.calls[turn]
	clear(s.at[:len(m.seats)])
	if c.op.Kind == comm.AllToAllV {
		for i := range m.seats {
			s.at[i] = countBytes(len(m.seats))
		}
	}
	for k := range c.op.Parts {
		p := &c.op.Parts[k]
		if c.op.Kind.Reduces() {
			m.unpackReduced(turn, pos, c, p)
		} else {
			m.unpackCopied(turn, pos, c, p)
		}
	}
}

func (m *meeting) unpackReduced(turn, pos int, c *call, p *comm.Part) {
	s := &m.seats[pos]
	src, dst := c.rows(p)
	rb := int(rowBytes(p.Src))
	lo := s.at[0]
	if len(c.op.Parts) == 1 {
		lo = begin(lo, src*rb)
	}
	for i := range m.seats { // every rank gives the same number of rows
		s.at[i] = aligned(lo + src*rb)
	}
	if dst == 0 {
		return
	}
	switch c.op.Kind {
	case comm.ReduceScatter:
		lo += pos * dst * rb
	case comm.ReduceScatterV:
		lo += s.plan.offsets[pos] * rb
	}
	w := s.job.scratch()
	for i := range m.seats {
		w.srcs[i] = m.boxes[turn][i].payload[lo : lo+dst*rb]
	}
	w.dsts[0] = p.Dst.Bytes()[:dst*rb]
	w.reduceTo(w.dsts[:1], w.srcs[:len(m.seats)], p.Src.DType(), c.op.Reduce, false)
	w.forget(len(m.seats), 1)
}

func (m *meeting) unpackCopied(turn, pos int, c *call, p *comm.Part) {
	s := &m.seats[pos]
	rb := int(rowBytes(p.Dst))
	to := 0
	for i := range m.seats {
		b, skip, n, given := m.boxes[turn][i], 0, 0, 0
		switch c.op.Kind {
		case comm.AllGather, comm.AllGatherV:
			n = s.plan.offsets[i+1] - s.plan.offsets[i]
			given = n
		case comm.AllToAllV:
			send := b.counts(len(m.seats))
			skip, n, given = sum(send[:pos]), int(send[pos]), sum(send)
		case comm.Broadcast:
			if i == c.op.Peer {
				if given = p.Src.Rows(); i != pos {
					n = given
				}
			}
		case comm.Recv:
			if i == 0 {
				n = p.Dst.Rows()
				given = n
			}
		}
		if len(c.op.Parts) == 1 {
			s.at[i] = begin(s.at[i], given*rb)
		}
		if n > 0 {
			from := s.at[i] + skip*rb
			copy(p.Dst.Bytes()[to*rb:(to+n)*rb], b.payload[from:from+n*rb])
			to += n
		}
		s.at[i] = aligned(s.at[i] + given*rb)
	}
}
