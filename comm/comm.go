package comm

import (
	"context"
	"sync/atomic"
)

// Comm is one rank's handle in a group of ranks. One goroutine uses it at a time; Abort and Stats may come from any.
// Every collective must be called by all ranks of the group in the same order. Buffers belong to the caller, who leaves
// them alone until the call returns (on a GPU: until the stream has passed it).
type Comm struct {
	conn       Conn
	device     Device // conn's
	rank, size int
	worldRank  int // rank in the world, which errors name; differs from rank in groups made by Split
	seq        uint64
	world      atomic.Pointer[World]
	tracer     Tracer
	counters   counters
	op         Op     // reused by the methods below: no allocation a call
	parts      []Part // Parts of op, copied so that a caller's variadic slice stays on its stack
	shapes     [NumOpKinds]shape
	lastShape  uint64
}

// New makes the handle of one rank over a driver's Conn. Drivers call it; users call a driver's Open or weft.Open.
func New(conn Conn, rank, size int) *Comm {
	return &Comm{conn: conn, device: conn.Device(), rank: rank, size: size, worldRank: rank, lastShape: numComms.Add(1) << shapeBits}
}

// Rank returns this rank, in [0, Size).
func (c *Comm) Rank() int { return c.rank }

// WorldRank returns this rank's number in the world. It differs from Rank in a group made by Split. Errors name ranks by it.
func (c *Comm) WorldRank() int { return c.worldRank }

// Size returns the number of ranks of the group.
func (c *Comm) Size() int { return c.size }

// Device returns where this rank's buffers live.
func (c *Comm) Device() Device { return c.device }

// Conn returns the driver's end, for its optional powers.
func (c *Comm) Conn() Conn { return c.conn }

// World returns the world this Comm belongs to; nil before NewWorld got it.
func (c *Comm) World() *World { return c.world.Load() }

// SetTracer makes t hear of every later operation of this Comm (nil: nobody). Groups made by Split inherit it.
func (c *Comm) SetTracer(t Tracer) { c.tracer = t }

// AllReduce reduces src [r, c] of all ranks into dst [r, c] on every rank. In place: dst is src.
func (c *Comm) AllReduce(s Stream, dst, src Buffer, r ReduceOp) error {
	return c.one(s, AllReduce, &dst, &src, r, 0)
}

// AllGather puts src [r, c] of rank i at rows [i*r, (i+1)*r) of dst [size*r, c] on every rank. In place: src is this
// rank's part of dst.
func (c *Comm) AllGather(s Stream, dst, src Buffer) error {
	return c.one(s, AllGather, &dst, &src, 0, 0)
}

// AllGatherV puts Src [>= n[rank], c] of every rank, in rank order and without gaps, into Dst [>= sum(n), c] on every rank,
// for each part. All parts share the counts and may differ in columns and type. In place: Src is this rank's part of Dst.
// With counts on the device the host cannot know that place: there Dst and Src must not overlap.
func (c *Comm) AllGatherV(s Stream, n Counts, parts ...Part) error {
	return c.ragged(s, AllGatherV, &n, &noCounts, 0, parts)
}

// ReduceScatter reduces src [size*r, c] of all ranks and gives rank i rows [i*r, (i+1)*r) as dst [r, c]. In place: dst is
// this rank's part of src.
func (c *Comm) ReduceScatter(s Stream, dst, src Buffer, r ReduceOp) error {
	return c.one(s, ReduceScatter, &dst, &src, r, 0)
}

// ReduceScatterV reduces Src [>= sum(n), c] of all ranks and gives rank i its n[i] rows as Dst [>= n[rank], c], for each
// part. In place as for AllGatherV: Dst is this rank's part of Src.
func (c *Comm) ReduceScatterV(s Stream, n Counts, r ReduceOp, parts ...Part) error {
	return c.ragged(s, ReduceScatterV, &n, &noCounts, r, parts)
}

// AllToAllV sends send[j] rows of Src [>= sum(send), c], ordered by destination, to rank j, and receives recv[i] rows from
// rank i into Dst [>= sum(recv), c], ordered by source. Dst and Src must not overlap.
func (c *Comm) AllToAllV(s Stream, send, recv Counts, parts ...Part) error {
	return c.ragged(s, AllToAllV, &send, &recv, 0, parts)
}

// Broadcast copies buf [r, c] of root into buf of every rank.
func (c *Comm) Broadcast(s Stream, buf Buffer, root int) error {
	return c.one(s, Broadcast, &buf, &buf, 0, root)
}

// Reduce reduces src [r, c] of all ranks into dst [r, c] on root; dst is not used elsewhere and may be the zero Buffer.
func (c *Comm) Reduce(s Stream, dst, src Buffer, r ReduceOp, root int) error {
	return c.one(s, Reduce, &dst, &src, r, root)
}

// Send sends src [r, c] to rank to, which must call Recv with the same shape and type. On the CPU it returns when the data
// has been received, so two ranks that both send first wait for each other until their timeout.
func (c *Comm) Send(s Stream, src Buffer, to int) error {
	return c.one(s, Send, &Buffer{}, &src, 0, to)
}

// Recv receives dst [r, c] from rank from.
func (c *Comm) Recv(s Stream, dst Buffer, from int) error {
	return c.one(s, Recv, &dst, &Buffer{}, 0, from)
}

// Barrier returns when all ranks have called it.
func (c *Comm) Barrier(s Stream) error {
	c.parts = c.parts[:0]
	return c.Do(s, c.next(Barrier, 0, 0, &noCounts, &noCounts))
}

func (c *Comm) one(s Stream, k OpKind, dst, src *Buffer, r ReduceOp, peer int) error {
	if len(c.parts) != 1 {
		c.parts = append(c.parts[:0], Part{})
	}
	c.parts[0].Dst, c.parts[0].Src = *dst, *src
	return c.Do(s, c.next(k, r, peer, &noCounts, &noCounts))
}

func (c *Comm) ragged(s Stream, k OpKind, send, recv *Counts, r ReduceOp, parts []Part) error {
	c.parts = append(c.parts[:0], parts...)
	return c.Do(s, c.next(k, r, 0, send, recv))
}

// next returns c.op with everything set.
func (c *Comm) next(k OpKind, r ReduceOp, peer int, send, recv *Counts) *Op {
	op := &c.op
	op.Kind, op.Reduce, op.Peer, op.Parts = k, r, peer, c.parts
	op.Send.set(send)
	op.Recv.set(recv)
	return op
}

// noCounts is what operations without counts have.
var noCounts Counts

// Split is collective: ranks of one color form a new group, ordered by key, then by rank. A negative color joins none and
// gets a nil Comm. The group belongs to the same world: when that dies, so does the group. Its Rank and Size are the
// group's; its errors name ranks of the world. The caller closes it when it is no longer needed.
func (c *Comm) Split(ctx context.Context, color, key int) (*Comm, error) {
	if w := c.world.Load(); w != nil {
		if cause := w.Err(); cause != nil {
			return nil, c.dead("split", cause)
		}
	}
	conn, rank, size, err := c.conn.Split(ctx, color, key)
	if err != nil {
		c.failed(err)
		return nil, err
	}
	if conn == nil {
		return nil, nil
	}
	return c.Group(conn, rank, size), nil
}

// Group makes the handle of a group of c's world over another Conn of this rank. Split calls it; others are drivers made of
// drivers, whose parts are groups already.
func (c *Comm) Group(conn Conn, rank, size int) *Comm {
	sub := New(conn, rank, size)
	sub.worldRank = c.worldRank
	sub.world.Store(c.world.Load())
	sub.tracer = c.tracer
	return sub
}

// Wait blocks until the stream's work is done. Asynchronous errors appear here.
func (c *Comm) Wait(ctx context.Context, s Stream) error {
	err := c.conn.Wait(ctx, s)
	if err != nil {
		c.failed(err)
	}
	return err
}

// Abort kills the world of this Comm: waits of all ranks return Aborted with cause. Any goroutine may call it.
func (c *Comm) Abort(cause error) {
	if w := c.world.Load(); w != nil {
		w.Abort(cause)
		return
	}
	c.conn.Abort(cause)
}

// Close frees what the rank holds; see Conn.
func (c *Comm) Close(ctx context.Context) error { return c.conn.Close(ctx) }
