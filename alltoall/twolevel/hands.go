package twolevel

import (
	"unsafe"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/dtype"
	"github.com/weftgo/weft/ep"
	"github.com/weftgo/weft/internal/kernels/exchange"
)

// hands is what handles rows and lists: the CPU, or a GPU for which the host plans. Lists are int32 [n, 1].
type hands interface {
	// begin refuses a stream on which the host cannot wait.
	begin(s comm.Stream, what string) error
	// read checks a Dispatch's arguments. Ids and weights of the batch are on the host, and rows are cut to its tokens. fatal is an
	// error after which this rank cannot even refuse.
	read(s comm.Stream, x comm.Buffer, r ep.Routing) (b exchange.Batch, cause, fatal error)
	// agree exchanges the counts.
	agree(s comm.Stream, c *counts) error
	// done waits for what a level was asked to do. The next level may only be asked after that: work that failed on a GPU lets the
	// stream go on, and would send on what never came.
	done(s comm.Stream, level *comm.Comm) error
	// prepare makes the memory of a bank that is about to be used fit for it.
	prepare(s comm.Stream, b *bank) error
	// give puts lists where rows are, into one of the bank's boxes, until that one is used again.
	give(s comm.Stream, b *bank, box int, to []comm.Buffer, lists [][]int32) error
	// take returns on the host what other ranks wrote into words.
	take(s comm.Stream, b *bank, words comm.Buffer) ([]int32, error)
	// gather copies row list[i] of src to row i of dst, zeros for -1.
	gather(s comm.Stream, dst, src, list comm.Buffer) error
	quantise(s comm.Stream, q, scales, x comm.Buffer) error
	// add is exchange.Sums.
	add(s comm.Stream, out, rows comm.Buffer, t sums, bias []comm.Buffer) error
	// receive makes the result of b.locals and b.weights.
	receive(s comm.Stream, b *bank, batch exchange.Batch, dropped int) (*ep.Received, error)
}

// The boxes of lists.
const (
	sendBox = iota
	relayBox
	backBox
	indexBox
	numBoxes
)

// give is the hands', with lists that it keeps in one place, so that a call allocates nothing.
func (x *Exchange) give(s comm.Stream, b *bank, box int, to []comm.Buffer, lists ...[]int32) error {
	x.given = append(x.given[:0], lists...)
	return x.hands.give(s, b, box, to, x.given)
}

// sums is exchange.Terms where rows are. weight may be the zero Buffer.
type sums struct{ start, item, weight comm.Buffer }

// host is the hands of the CPU.
type host struct{ x *Exchange }

func (host) begin(comm.Stream, string) error { return nil }

func (h host) read(_ comm.Stream, x comm.Buffer, r ep.Routing) (b exchange.Batch, cause, fatal error) {
	if b, cause = h.x.Check(x, r); cause != nil && h.x.Closed() {
		return b, nil, cause
	}
	return b, cause, nil
}

func (h host) agree(s comm.Stream, c *counts) error {
	if err := h.x.between.AllGather(s, comm.Of(c.column, c.width), comm.Of(c.own, c.width)); err != nil {
		return err
	}
	return h.x.inside.AllGather(s, comm.Of(c.all, c.nodes*c.width), comm.Of(c.column, c.nodes*c.width))
}

func (host) done(comm.Stream, *comm.Comm) error { return nil }

func (host) prepare(comm.Stream, *bank) error { return nil }

func (host) give(_ comm.Stream, _ *bank, _ int, to []comm.Buffer, lists [][]int32) error {
	for i, l := range lists {
		to[i] = comm.Of(l, 1)
	}
	return nil
}

func (host) take(_ comm.Stream, _ *bank, words comm.Buffer) ([]int32, error) {
	return exchange.View[int32](words), nil
}

func (h host) gather(_ comm.Stream, dst, src, list comm.Buffer) error {
	h.x.Gatherer.Gather(dst, src, exchange.View[int32](list))
	return nil
}

func (h host) quantise(_ comm.Stream, q, scales, x comm.Buffer) error {
	h.x.Quantiser.Quantise(q, scales, x)
	return nil
}

func (h host) add(_ comm.Stream, out, rows comm.Buffer, t sums, bias []comm.Buffer) error {
	terms := exchange.Terms{Start: exchange.View[int32](t.start), Item: exchange.View[int32](t.item)}
	if !t.weight.IsZero() {
		terms.Weight = floats(exchange.View[int32](t.weight))
	}
	h.x.Sums.Sum(out, rows, terms, bias)
	return nil
}

func (h host) receive(_ comm.Stream, b *bank, batch exchange.Batch, dropped int) (*ep.Received, error) {
	rows := b.received[h.x.nodes]
	locals, err := b.Locals.Rows(h.x.Comm, rows)
	if err != nil {
		return nil, err
	}
	weights, err := b.Weights.Rows(h.x.Comm, rows)
	if err != nil {
		return nil, err
	}
	copy(exchange.View[int32](locals), b.locals)
	copy(words(exchange.View[float32](weights)), b.weights)
	return h.x.Receive(b.Bank, rows, batch, b.plan.DroppedIDs, dropped)
}

// words and floats view one as the other, bit for bit.
func words(x []float32) []int32 {
	return unsafe.Slice((*int32)(unsafe.Pointer(unsafe.SliceData(x))), len(x))
}

func floats(x []int32) []float32 {
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(x))), len(x))
}

// shaped views a list as rows x cols elements of a type of as many bytes.
func shaped(b comm.Buffer, t dtype.DType, rows, cols int) comm.Buffer {
	if b.Device().Kind == comm.CPU {
		return comm.OfBytes(b.Bytes(), t, rows, cols)
	}
	return comm.At(b.Device(), b.Addr(), t, rows, cols, cols)
}
