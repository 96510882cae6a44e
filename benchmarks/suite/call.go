package suite

import (
	"errors"

	"github.com/weftgo/weft/comm"
)

// call is one rank's arguments of one cell, made before the clock starts.
type call struct {
	comm               *comm.Comm
	stream             comm.Stream
	host               []byte // where inputs and results are on the host, for buffers that are not
	rank, size         int
	shape              Shape
	dst, src           comm.Buffer
	counts, send, recv comm.Counts
	redop              comm.ReduceOp
	root               int
	parts              [1]comm.Part // a field, so that passing it allocates nothing
}

// arena is one rank's memory for all cells of a Bench.
type arena struct{ send, recv comm.Buffer }

// arrange makes the call of a rank: buffers [elements, 1] cut from its arena.
func (b *Bench) arrange(c *comm.Comm, shape Shape, inPlace bool) *call {
	r, a := c.Rank(), b.arenas[c.Rank()]
	x := &call{comm: c, stream: b.devices[r].handle(), rank: r, size: c.Size(), shape: shape, redop: b.Redop, root: b.Root}
	x.src = a.send.Slice(b.Unalign, b.Unalign+shape.Send[r])
	x.dst = a.recv.Slice(b.Unalign, b.Unalign+shape.Recv[r])
	if inPlace {
		own := before(shape.Counts, min(r, len(shape.Counts)))
		switch {
		case shape.Counts == nil: // the same elements in and out
			x.src = x.dst
		case b.Op.Reduces: // the result is this rank's part of the input
			x.dst = x.src.Slice(own, own+shape.Counts[r])
		default: // the input is this rank's part of the result
			x.src = x.dst.Slice(own, own+shape.Counts[r])
		}
	}
	if shape.Counts != nil {
		x.counts = comm.Host(shape.Counts)
	}
	if shape.Matrix != nil {
		from := make([]int, c.Size())
		for i, row := range shape.Matrix {
			from[i] = row[r]
		}
		x.send, x.recv = comm.Host(shape.Matrix[r]), comm.Host(from)
	}
	x.parts[0] = comm.Part{Dst: x.dst, Src: x.src}
	return x
}

// load puts the rank's input in place and poison where the result goes.
func (x *call) load(p *Pattern) error {
	if x.src.IsZero() || x.dst.IsZero() {
		return nil
	}
	return errors.Join(x.write(x.dst, poison), x.write(x.src, func(data []byte) { p.Input(x.rank).write(data, 0) }))
}

// poison fills memory with what no result holds: NaN in most types, -1 in integers.
func poison(data []byte) {
	for i := range data {
		data[i] = 0xff
	}
}

// write lets fill write the elements of b.
func (x *call) write(b comm.Buffer, fill func(data []byte)) error {
	if b.Rows() == 0 {
		return nil
	}
	if b.Device().Kind == comm.CPU {
		fill(b.Bytes())
		return nil
	}
	onDevice, onHost := x.flat(b)
	fill(onHost.Bytes())
	return comm.Copy(x.comm, x.stream, onDevice, onHost)
}

// read returns the elements of b on the host, until the next read or write.
func (x *call) read(b comm.Buffer) ([]byte, error) {
	if b.Device().Kind == comm.CPU || b.Rows() == 0 {
		return b.Bytes(), nil
	}
	onDevice, onHost := x.flat(b)
	return onHost.Bytes(), comm.Copy(x.comm, x.stream, onHost, onDevice)
}

// flat is device memory as one row, and as much host memory.
func (x *call) flat(b comm.Buffer) (onDevice, onHost comm.Buffer) {
	n := int(b.SizeBytes())
	if len(x.host) < n {
		x.host = make([]byte, n)
	}
	return comm.At(b.Device(), b.Addr(), b.DType(), 1, b.Rows(), b.Rows()), comm.OfBytes(x.host, b.DType(), 1, b.Rows())
}

// wrong counts the elements of the result that are not what the operation must give.
func (x *call) wrong(op *Operation, p *Pattern) (count int64, err error) {
	for _, want := range op.wants(x, p) {
		if want.n == 0 {
			continue
		}
		got, err := x.read(x.dst.Slice(want.at, want.at+want.n))
		if err != nil {
			return 0, err
		}
		count += want.values.wrong(got, want.start)
	}
	return count, nil
}
