package local

import (
	"context"
	"unsafe"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/dtype"
	"github.com/weftgo/weft/internal/simd"
)

// prepared is what a rank works out of a call of one part and keeps for the next of the same shape: programs repeat their calls,
// and of a small one this is most of the work.
type prepared struct {
	shape     uint64 // Op.Shape
	signature uint64
	state     uint32
	plan      plan
	sent      int64
	head      int // bytes of counts that the payload begins with
	give      int // bytes that the rank puts into the payload after them
	rowBytes  int
	at        int   // where they begin
	lo, hi    int   // reductions: the bytes of the payload that this rank gets the sum of
	cuts      []int // others: bytes [cuts[i], cuts[i+1]) of dst come from rank i
}

// prepare notes what the published call of the seat has in common with later ones.
func (m *meeting) prepare(k *prepared, pos int, c *call) {
	k.shape, k.signature, k.state = c.op.Shape, c.signature, c.box.state
	if k.state == opaque || c.op.Kind == comm.Barrier {
		return // nothing of what follows is used
	}
	p := &c.op.Parts[0]
	k.rowBytes = int(rowBytes(p.Dst))
	c.layout(&k.plan)
	k.sent = m.sentBytes(c.turn, pos, &k.plan)
	src, dst := c.rows(p)
	k.head, k.cuts = 0, append(k.cuts[:0], 0)
	if c.op.Kind == comm.AllToAllV {
		k.head = countBytes(c.size)
	}
	k.give = src * k.rowBytes
	k.at = begin(k.head, k.give)
	k.lo, k.hi = k.at, k.at+dst*k.rowBytes
	switch c.op.Kind {
	case comm.ReduceScatter, comm.ReduceScatterV:
		k.lo, k.hi = k.at+k.plan.offsets[pos]*k.rowBytes, k.at+k.plan.offsets[pos+1]*k.rowBytes
	case comm.AllGather, comm.AllGatherV:
		for _, rows := range k.plan.offsets[1:] {
			k.cuts = append(k.cuts, rows*k.rowBytes)
		}
	case comm.AllToAllV:
		for i, rows := range c.recv {
			k.cuts = append(k.cuts, k.cuts[i]+rows*k.rowBytes)
		}
	}
}

// quick does a call of one part whose shape is known.
func (m *meeting) quick(k *prepared, pos int, op *comm.Op) error {
	s := &m.seats[pos]
	turn := s.turn
	c := &s.calls[turn]
	if k.shape != op.Shape {
		if err := c.publish(op); err != nil {
			return &comm.Error{Op: op.Label(), Rank: s.rank, Peer: comm.NoPeer, Code: comm.Invalid, Err: err}
		}
		m.prepare(k, pos, c)
	} else {
		c.again(k, op)
	}
	err := m.runQuick(k, turn, pos, c, &op.Stats)
	c.forget()
	return err
}

// again publishes a call of known shape.
func (c *call) again(k *prepared, op *comm.Op) {
	c.op, c.split, c.signature = op, false, k.signature
	c.send, _ = op.Send.Host()
	c.recv, _ = op.Recv.Host()
	b := c.box
	b.signature, b.state = k.signature, k.state
	if k.state == opaque || op.Kind == comm.Barrier {
		return
	}
	p := &op.Parts[0]
	if k.state == packed {
		simd.Own(unsafe.Pointer(&b.payload[firstLine]), (k.at+k.give-firstLine+lineBytes-1)/lineBytes)
	}
	b.point(p)
	if k.head > 0 {
		b.putCounts(c.send, c.recv)
	}
	if k.state == packed && k.give > 0 {
		copy(b.payload[k.at:], unsafe.Slice((*byte)(p.Src.Pointer()), k.give))
	}
}

func (m *meeting) runQuick(k *prepared, turn, pos int, c *call, stats *comm.OpStats) error {
	s := &m.seats[pos]
	if err := m.dead(s, c); err != nil {
		return err
	}
	if m.led {
		return m.runLed(context.Background(), pos, k, c, stats)
	}
	g := m.come(s)
	if err := m.meet(context.Background(), pos, &g, c, stats); err != nil {
		return err
	}
	s.entered()
	state := m.agreed(turn, c)
	if state == opaque {
		return m.runOpaque(turn, pos, c, stats)
	}
	stats.SentBytes = k.sent
	if state == direct {
		return m.runDirect(turn, pos, c, &k.plan, stats)
	}
	if c.op.Kind != comm.Barrier {
		m.unpackOne(k, turn, pos, c.op)
	}
	return nil
}

// unpackOne is unpack for a call of one part.
func (m *meeting) unpackOne(k *prepared, turn, pos int, op *comm.Op) {
	boxes, p := m.boxes[turn], &op.Parts[0]
	if op.Kind.Reduces() {
		if k.lo < k.hi {
			m.sumBoxes(k, turn, pos, op, unsafe.Slice((*byte)(p.Dst.Pointer()), k.hi-k.lo))
		}
		return
	}
	size := len(boxes)
	if op.Kind == comm.Broadcast {
		if n := p.Dst.Rows() * k.rowBytes; pos != op.Peer {
			copy(unsafe.Slice((*byte)(p.Dst.Pointer()), n), boxes[op.Peer].payload[begin(0, n):])
		}
		return
	}
	if k.cuts[size] == 0 {
		return
	}
	dst := unsafe.Slice((*byte)(p.Dst.Pointer()), k.cuts[size])
	for i, b := range boxes {
		lo, hi := k.cuts[i], k.cuts[i+1]
		from := begin(0, hi-lo)
		if op.Kind == comm.AllToAllV {
			send := b.counts(size)
			from = begin(k.head, sum(send)*k.rowBytes) + sum(send[:pos])*k.rowBytes
		}
		copy(dst[lo:hi], b.payload[from:])
	}
}

// sumBoxes reduces what the boxes of all have for this rank.
func (m *meeting) sumBoxes(k *prepared, turn, pos int, op *comm.Op, dst []byte) {
	boxes, t := m.boxes[turn], op.Parts[0].Dst.DType()
	if len(boxes) == 2 && t == dtype.F32 && op.Reduce == comm.Sum && len(dst) <= 64 {
		out := of[float32](dst)
		a, b := of[float32](boxes[0].payload[k.lo:k.hi]), of[float32](boxes[1].payload[k.lo:k.hi])
		for i := range out {
			out[i] = float32(0) + a[i] + b[i]
		}
		return
	}
	w := m.seats[pos].job.scratch()
	for i, b := range boxes {
		w.srcs[i] = b.payload[k.lo:k.hi]
	}
	w.dsts[0] = dst
	w.reduceTo(w.dsts[:1], w.srcs[:len(boxes)], t, op.Reduce, false)
	w.forget(len(boxes), 1)
}
