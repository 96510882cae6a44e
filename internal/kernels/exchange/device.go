package exchange

import (
	"context"
	"errors"
	"fmt"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/cuda"
	"github.com/weftgo/weft/dtype"
	"github.com/weftgo/weft/ep"
	"github.com/weftgo/weft/internal/kernels"
)

// Device is what a Core has beside its banks when its rank is on a GPU. All memory is taken at construction.
type Device struct {
	Seater  kernels.Seater
	Experts kernels.Experts
	Stats   comm.Buffer // int64 [1, kernels.NumStats + NumLocal]

	core *Core
	used []comm.Buffer
	held int64 // bytes for rows
}

// GPUBank is the memory of one result on a GPU.
type GPUBank struct {
	Got       ep.Received // X, Scales, Y, Index, Dropped, NumRows
	NumTokens comm.Buffer // int32 [1, 1]
	fill      []comm.Buffer
}

// HostPlanner is a Conn of GPUs whose exchange is planned on the host: it needs no table of experts, and knows no limits of the
// kernels that plan.
type HostPlanner interface{ HostPlans() }

// newDevice refuses what the kernels cannot do, and uploads the table of experts.
func newDevice(x *Core) (*Device, error) {
	d := &Device{core: x}
	var ok bool
	if d.Seater, ok = x.Comm.Conn().(kernels.Seater); !ok {
		return nil, fmt.Errorf("driver %T cannot launch the kernels of an exchange on %v; open the ranks with comm/p2p, or in a world of nodes choose alltoall", x.Comm.Conn(), x.Comm.Device())
	}
	if _, ok := x.Comm.Conn().(HostPlanner); ok {
		return d, nil
	}
	p, size := x.Cfg.Placement, x.Comm.Size()
	if x.Cfg.TopK > kernels.MaxTopK || p.NumPhysical() > kernels.MaxPhysical || size > kernels.MaxRanks {
		return nil, fmt.Errorf("TopK %d, %d experts with replicas, %d ranks; on a GPU at most %d, %d, %d",
			x.Cfg.TopK, p.NumPhysical(), size, kernels.MaxTopK, kernels.MaxPhysical, kernels.MaxRanks)
	}
	if x.Cfg.MaxTokensPerRank > maxTokens {
		return nil, fmt.Errorf("MaxTokensPerRank %d > %d, the most on a GPU", x.Cfg.MaxTokensPerRank, maxTokens)
	}
	per, more := p.NumPhysical()/size, p.NumPhysical()%size
	var start []int32
	replicas := make([]int32, p.NumPhysical())
	next := make([]int32, p.NumExperts+1)
	for e := range p.NumPhysical() {
		next[logical(p.Physical, e)+1]++
	}
	for e := range p.NumExperts {
		next[e+1] += next[e]
	}
	start = append(start, next...)
	plain := p.NumPhysical() == p.NumExperts
	for e := range p.NumPhysical() { // replicas in the order of Physical, as Placement.Place counts them
		rank, local := p.OwnerOfPhysical(e)
		l := logical(p.Physical, e)
		replicas[next[l]] = int32(rank*per + min(rank, more) + local)
		plain = plain && int(replicas[next[l]]) == l
		next[l]++
	}
	table := append(start, replicas...)
	buf, err := d.Alloc(dtype.I32, 1, len(table))
	if err == nil {
		err = comm.Copy(x.Comm, comm.Stream{}, buf, comm.Of(table, len(table)))
	}
	if err == nil {
		d.Stats, err = d.Alloc(dtype.I64, 1, kernels.NumStats+x.NumLocal+kernels.NumStamps)
	}
	d.Experts = kernels.Experts{Table: uint64(buf.Addr()), NumExperts: uint32(p.NumExperts), NumPhysical: uint32(p.NumPhysical()),
		NumRanks: uint32(size), Rank: uint32(x.Comm.Rank()), TopK: uint32(x.Cfg.TopK), NumLocal: uint32(x.NumLocal),
		Alignment: uint32(x.Cfg.Alignment), Per: uint32(per), More: uint32(more),
		InversePer: kernels.Reciprocal(per), InverseMore: kernels.Reciprocal(per + 1), InverseTopK: kernels.Reciprocal(x.Cfg.TopK)}
	if plain {
		d.Experts.Plain = 1
	}
	return d, err
}

// maxTokens keeps products of tokens and shares of them within 32 bits in kernels.
const maxTokens = 1 << 24

func logical(physical []int32, e int) int {
	if physical == nil {
		return e
	}
	return int(physical[e])
}

// Alloc takes memory that Close gives back.
func (d *Device) Alloc(t dtype.DType, rows, cols int) (comm.Buffer, error) {
	b, err := comm.Alloc(d.core.Comm, t, rows, max(cols, 1))
	if err == nil {
		d.used = append(d.used, b)
	}
	return b, err
}

// Need allocates into each of list in turn, and remembers the first error.
type Need struct {
	Dev *Device
	Err error
}

// Buffer returns memory of Alloc, or the zero Buffer after an error.
func (n *Need) Buffer(t dtype.DType, rows, cols int) comm.Buffer {
	if n.Err != nil {
		return comm.Buffer{}
	}
	var b comm.Buffer
	b, n.Err = n.Dev.Alloc(t, rows, cols)
	return b
}

// OutputRows is the rows of Y.
func (d *Device) OutputRows() int {
	if d.core.Cfg.Output == ep.PartialRows {
		return d.core.Cfg.MaxRecvRows
	}
	return int(d.core.Cfg.MaxSlots())
}

// NewBank takes what both strategies' results have: counts, offsets; and y.
func (d *Device) NewBank(n *Need, y comm.Buffer) GPUBank {
	x := d.core
	b := GPUBank{NumTokens: n.Buffer(dtype.I32, 1, 1)}
	b.Got.Y = y
	b.Got.NumRows = n.Buffer(dtype.I32, 1, 1)
	b.Got.Dropped = n.Buffer(dtype.I32, 1, 2)
	b.Got.Index.Counts = none(n.Buffer(dtype.I32, 2, x.NumLocal), x.NumLocal)
	b.Got.Index.Offsets = n.Buffer(dtype.I32, 1, x.NumLocal+1)
	d.held += b.Got.Y.SizeBytes()
	return b
}

// none makes a buffer of no columns one of no rows.
func none(b comm.Buffer, cols int) comm.Buffer {
	if cols == 0 && !b.IsZero() {
		return b.Slice(0, 0)
	}
	return b
}

// Poisoned names the buffers of a bank that tests fill before each use.
func (b *GPUBank) Poisoned(list ...comm.Buffer) { b.fill = append(b.fill, list...) }

// Hold counts memory for rows.
func (d *Device) Hold(b comm.Buffer) { d.held += b.SizeBytes() }

// poison fills the bank's memory as Mem.poison does.
func (b *GPUBank) poison(st *cuda.Stream) error {
	if !Poison.Load() {
		return nil
	}
	for _, m := range b.fill {
		value := byte(0xff)
		if !m.DType().IsFloat() {
			value = 0x7b
		}
		if m.SizeBytes() == 0 {
			continue
		}
		if err := st.Fill(m.Addr(), value, int(m.SizeBytes())); err != nil {
			return err
		}
	}
	return nil
}

// Seat is Seater.Seat, and the poison of a bank about to be used.
func (d *Device) Seat(s comm.Stream, a *kernels.Args, n kernels.Note, b *GPUBank) (kernels.Seat, error) {
	seat, err := d.Seater.Seat(s, a, n)
	if most := d.core.Cfg.Blocks; most > 0 {
		seat.Blocks, seat.Most = min(seat.Blocks, most), most
	}
	if err == nil && b != nil {
		if err = b.poison(seat.Stream); err != nil {
			err = d.Failed(n.Label, err)
		}
	}
	return seat, err
}

// Failed is the error of a launch that did not work.
func (d *Device) Failed(op string, err error) error {
	if err == nil {
		return nil
	}
	if e := (*comm.Error)(nil); errors.As(err, &e) {
		return err
	}
	return &comm.Error{Op: op, Rank: d.core.Comm.WorldRank(), Peer: comm.NoPeer, Code: comm.Internal, Err: err}
}

// Take makes the result of a Dispatch from a bank's memory, which Hold may have taken. numRows are the rows of x.
func (x *Core) Take(b *Bank, got *GPUBank, s comm.Stream, numRows int) *ep.Received {
	b.numRows, b.numTokens, b.received = numRows, numRows, 0
	st := b.live
	if st == nil {
		st = &state{bank: b, core: x, number: x.numReceived}
		b.live = st
	}
	st.Received, st.phase, st.stream = got.Got, received, s
	st.State = st
	return &st.Received
}

// TakeHeld is Take for the second half.
func (x *Core) TakeHeld(r *ep.Received, got *GPUBank, s comm.Stream) {
	b := r.State.(*state).bank
	x.Take(b, got, s, b.numRows)
}

// NextNumber counts a Dispatch, whether it succeeds or not, so that all ranks have the same number.
func (x *Core) NextNumber() uint64 {
	x.numReceived++
	return x.numReceived
}

// Counts implements ep.Counter: it waits for the stream of the Dispatch.
func (s *state) Counts(ctx context.Context) (counts, offsets []int32, err error) {
	x := s.core
	if x.Dev == nil {
		return View[int32](s.Index.Counts), View[int32](s.Index.Offsets), nil
	}
	if s.bank == nil {
		return nil, []int32{0}, nil
	}
	if err = s.failed; err != nil {
		return nil, nil, err
	}
	if err = x.Comm.Wait(ctx, s.stream); err == nil {
		counts, offsets = make([]int32, 2*x.NumLocal), make([]int32, x.NumLocal+1)
		err = comm.Copy(x.Comm, s.stream, comm.Of(offsets, len(offsets)), s.Index.Offsets)
		if err == nil && x.NumLocal > 0 {
			err = comm.Copy(x.Comm, s.stream, comm.Of(counts, x.NumLocal), s.Index.Counts)
		}
	}
	s.failed = err
	return counts, offsets, err
}

// stats reads the counters on the device. Only the rank's goroutine may.
func (d *Device) stats() (st ep.Stats) {
	n := d.core.NumLocal
	list := make([]int64, kernels.NumStats+n)
	if d.core.closed || comm.Copy(d.core.Comm, comm.Stream{}, comm.Of(list, len(list)), d.Stats.Columns(0, len(list))) != nil {
		return ep.Stats{ExpertTokens: make([]int64, n)}
	}
	return ep.Stats{NumDispatches: list[0], NumTokens: list[1], NumCopies: list[2], NumCrossCopies: list[3], NumSlots: list[4],
		DroppedIDs: list[5], DroppedCopies: list[6], HeldBytes: d.held, ExpertTokens: list[kernels.NumStats:]}
}

// close gives the memory back after the rank's own work; in a dead world that has left.
func (d *Device) close(ctx context.Context) error {
	_ = d.core.Comm.Wait(ctx, comm.Stream{})
	var errs []error
	for _, b := range d.used {
		errs = append(errs, comm.Free(d.core.Comm, b))
	}
	d.used = nil
	return errors.Join(errs...)
}

// Addr is a buffer's address as kernels take it; 0 of the zero Buffer.
func Addr(b comm.Buffer) uint64 { return uint64(b.Addr()) }

// Stride is a buffer's row stride in bytes.
func Stride(b comm.Buffer) int64 { return int64(b.Stride()) * int64(b.DType().Size()) }

// GatherWords is an all-gather of words from and to host memory, on any device.
func GatherWords(ctx context.Context, c *comm.Comm, all, own []int64) error {
	n := len(own)
	if c.Device().Kind == comm.CPU {
		return c.AllGather(comm.Stream{}, comm.Of(all, n), comm.Of(own, n))
	}
	d := make([]comm.Buffer, 2)
	var err error
	for i, rows := range []int{c.Size(), 1} {
		if d[i], err = comm.Alloc(c, dtype.I64, rows, n); err != nil {
			return err
		}
		defer func() { _ = comm.Free(c, d[i]) }()
	}
	if err = comm.Copy(c, comm.Stream{}, d[1], comm.Of(own, n)); err != nil {
		return err
	}
	if err = c.AllGather(comm.Stream{}, d[0], d[1]); err != nil {
		return err
	}
	if err = c.Wait(ctx, comm.Stream{}); err != nil {
		return err
	}
	return comm.Copy(c, comm.Stream{}, comm.Of(all, n), d[0])
}
