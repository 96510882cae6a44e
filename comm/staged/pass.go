package staged

import (
	"context"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/dtype"
)

// pass is one operation of the driver with what it moves. Its slices are reused.
type pass struct {
	op       comm.Op
	parts    []comm.Part
	src, dst []half
	own, all half // counts on the device, as rows of int32; the zero half where the host has them
}

// once copies the window of every part to the device, runs the operation and copies the result back.
func (c *conn) once(op *comm.Op, parts []comm.Part, w *window, tag uint64) error {
	x := &c.pass
	in, total := c.plan(op, parts, w)
	if err := c.room(total); err != nil {
		return err
	}
	x.op = comm.Op{Kind: op.Kind, Reduce: op.Reduce, Peer: op.Peer, Send: op.Send, Recv: op.Recv, Tag: tag, Seq: op.Seq}
	x.counts(op, c.work)
	x.parts = x.parts[:0]
	for i := range x.src {
		x.parts = append(x.parts, comm.Part{Dst: x.dst[i].device(c.work), Src: x.src[i].device(c.work)})
	}
	x.op.Parts = x.parts

	x.own.pack(c.host)
	for i := range x.src {
		x.src[i].pack(c.host)
	}
	if err := c.copy(true, 0, in); err != nil {
		return err
	}
	if err := c.in.Do(comm.Stream{}, &x.op); err != nil {
		return err
	}
	if x.all.moved { // first: they say how many rows there are
		if err := c.copy(false, x.all.at, x.all.bytes()); err != nil {
			return err
		}
		x.all.unpack(c.host)
		x.known(op, c.size)
	}
	if err := c.download(); err != nil {
		return err
	}
	if err := c.in.Wait(context.Background(), comm.Stream{}); err != nil {
		return err
	}
	for i := range x.dst {
		x.dst[i].unpack(c.host)
	}
	if op.Stats.Launches += x.op.Stats.Launches; x.all.moved {
		op.Stats.SentBytes += c.sentBytes(op)
	} else {
		op.Stats.SentBytes += x.op.Stats.SentBytes
	}
	return nil
}

// plan lays everything out in the workspace: what goes in, then what comes out. It returns where the first ends, and the last.
func (c *conn) plan(op *comm.Op, parts []comm.Part, w *window) (in, total int) {
	x := &c.pass
	x.src, x.dst = x.src[:0], x.dst[:0]
	x.own, x.all = half{}, half{}
	ragged := op.Kind == comm.AllGatherV || op.Kind == comm.ReduceScatterV || op.Kind == comm.AllToAllV
	every := window{right: maxColumns}
	if _, isHost := op.Send.Host(); ragged && !isHost {
		own, all, _ := op.Send.Device()
		x.own = newHalf(flat(own), 1, 1, true, &every)
		if op.Kind != comm.AllToAllV {
			x.all = newHalf(flat(all), 1, 1, true, &every)
		}
	}
	if _, isHost := op.Recv.Host(); op.Kind == comm.AllToAllV && !isHost {
		_, all, _ := op.Recv.Device()
		x.all = newHalf(flat(all), 1, 1, true, &every)
	}
	at := x.own.place(0)
	if x.own.moved {
		in = at
	}
	for i := range parts {
		src, dst := c.halves(op, &parts[i], w)
		at = src.place(at)
		if src.moved && src.bytes() > 0 {
			in = at
		}
		x.src, x.dst = append(x.src, src), append(x.dst, dst)
	}
	at = x.all.place(at)
	for i := range x.dst {
		if op.Kind == comm.Broadcast { // it has one buffer
			x.dst[i].at = x.src[i].at
			continue
		}
		at = x.dst[i].place(at)
	}
	return in, at
}

// flat views counts as one row.
func flat(b comm.Buffer) comm.Buffer { return comm.Of(values(b), b.Rows()*b.Cols()) }

// counts puts the counts that were in the caller's memory on the device.
func (x *pass) counts(op *comm.Op, work comm.Buffer) {
	if x.own.moved {
		_, _, limit := op.Send.Device()
		all := comm.Buffer{}
		if op.Kind != comm.AllToAllV {
			all = x.all.device(work)
		}
		x.op.Send = comm.OnDevice(x.own.device(work), all, limit)
	}
	if x.all.moved && op.Kind == comm.AllToAllV {
		_, _, limit := op.Recv.Device()
		x.op.Recv = comm.OnDevice(comm.Buffer{}, x.all.device(work), limit)
	}
}

// known cuts the destinations to the rows that came, now that the counts have.
func (x *pass) known(op *comm.Op, size int) {
	if op.Kind == comm.ReduceScatterV {
		return // own rows, which were known
	}
	rows := 0
	for _, n := range values(x.all.b) {
		rows += int(n)
	}
	for i := range x.dst {
		x.dst[i].hi = min(x.dst[i].hi, rows)
	}
}

// download copies what the destinations hold: at once, unless the device alone knew how much that would be.
func (c *conn) download() error {
	dst := c.pass.dst
	switch n := len(dst); {
	case n == 0 || !dst[0].moved:
		return nil
	case !c.pass.all.moved:
		return c.copy(false, dst[0].at, dst[n-1].at+dst[n-1].bytes()-dst[0].at)
	}
	for i := range dst {
		if err := c.copy(false, dst[i].at, dst[i].bytes()); err != nil {
			return err
		}
	}
	return nil
}

// copy moves bytes [at, at+n) of the workspace from or to the host.
func (c *conn) copy(up bool, at, n int) error {
	if n == 0 {
		return nil
	}
	device := comm.At(c.work.Device(), c.work.Addr()+uintptr(at), dtype.U8, 1, n, n)
	host := comm.OfBytes(c.host[at:at+n], dtype.U8, 1, n)
	if up {
		return c.memory.Copy(comm.Stream{}, device, host)
	}
	if err := c.memory.Copy(comm.Stream{}, host, device); err != nil {
		return err
	}
	return c.in.Wait(context.Background(), comm.Stream{}) // a driver may only enqueue the copy
}

// sentBytes is what the rank's part of a ragged operation moves between two ranks, by counts that were on the device: drivers
// do not know them when they report.
func (c *conn) sentBytes(op *comm.Op) (bytes int64) {
	x := &c.pass
	total, own := 0, 0
	for i, n := range values(x.all.b) {
		total += int(n)
		if i == c.rank {
			own = int(n)
		}
	}
	rows := total - own
	if op.Kind == comm.ReduceScatterV {
		rows = (c.size - 1) * own
	}
	for i := range x.src {
		bytes += int64(rows) * int64(x.src[i].rowBytes())
	}
	return bytes
}
