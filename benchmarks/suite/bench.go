package suite

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/dtype"
)

// Setup says what a Bench measures.
type Setup struct {
	Op      *Operation
	Type    dtype.DType
	Redop   comm.ReduceOp // of operations that reduce
	Root    int           // of operations with a root
	Load    Load          // of ragged operations
	Unalign int           // elements by which buffers are moved off their alignment
	Seed    uint64        // of the inputs
}

// Bench measures one operation in one world. One goroutine uses it at a time.
type Bench struct {
	Setup
	World   *comm.World
	ranks   int
	arenas  []arena
	devices []*device
}

// New checks the setup against the world. A nil Bench and the reason come back for an operation that cannot run there. The
// caller closes the Bench.
func New(w *comm.World, s Setup) (*Bench, error) {
	b := &Bench{Setup: s, World: w, ranks: w.Size(), arenas: make([]arena, w.Size()), devices: make([]*device, w.Size())}
	switch {
	case len(w.Local()) != w.Size():
		return nil, fmt.Errorf("%s: the benchmark needs all %d ranks in one process", s.Op.Name, w.Size())
	case b.ranks < s.Op.MinRanks:
		return nil, fmt.Errorf("%s needs %d ranks, there are %d", s.Op.Name, s.Op.MinRanks, b.ranks)
	case s.Op.Rooted && (s.Root < 0 || s.Root >= b.ranks):
		return nil, fmt.Errorf("%s: root %d is not in [0, %d)", s.Op.Name, s.Root, b.ranks)
	case s.Op.Reduces && s.Redop == comm.Avg && !s.Type.IsFloat():
		return nil, fmt.Errorf("%s: avg needs a floating-point type, not %v", s.Op.Name, s.Type)
	case !s.Type.Valid():
		return nil, fmt.Errorf("%s: no type given", s.Op.Name)
	}
	if err := s.Load.Validate(); err != nil {
		return nil, err
	}
	for r, c := range w.Local() {
		var err error
		if b.devices[r], err = openDevice(c); err != nil {
			return nil, errors.Join(err, b.Close())
		}
	}
	return b, nil
}

// Close gives memory and streams back.
func (b *Bench) Close() error {
	var errs []error
	for r, c := range b.World.Local() {
		errs = append(errs, b.devices[r].close(), comm.Free(c, b.arenas[r].send), comm.Free(c, b.arenas[r].recv))
		b.devices[r], b.arenas[r] = nil, arena{}
	}
	return errors.Join(errs...)
}

// ShapeOf returns what a size in bytes means for this operation.
func (b *Bench) ShapeOf(sizeBytes int64) Shape {
	return b.Op.Shape(int(sizeBytes)/b.Type.Size(), b.ranks, b.Type.Size(), b.Load)
}

// Reserve makes memory for sizes up to sizeBytes and returns its bytes over all ranks. Measure does it when it was not done.
func (b *Bench) Reserve(sizeBytes int64) (int64, error) {
	shape := b.ShapeOf(sizeBytes)
	var total int64
	for r, c := range b.World.Local() {
		for _, m := range []struct {
			at *comm.Buffer
			n  int
		}{{&b.arenas[r].send, shape.Send[r]}, {&b.arenas[r].recv, shape.Recv[r]}} {
			if m.at.Rows() < m.n+b.Unalign || m.at.IsZero() {
				if err := comm.Free(c, *m.at); err != nil {
					return 0, err
				}
				*m.at = comm.Buffer{}
				buf, err := comm.Alloc(c, b.Type, max(1, m.n+b.Unalign), 1)
				if err != nil {
					return 0, fmt.Errorf("%s of %d bytes: %w", b.Op.Name, sizeBytes, err)
				}
				*m.at = buf
			}
			total += m.at.SizeBytes()
		}
	}
	return total, nil
}

// Result is one cell.
type Result struct {
	Size     int64 // bytes, as the size column counts them
	Count    int
	InPlace  bool
	Times    Times
	TimeUs   float64 // of one operation
	AlgBW    float64 // GB/s
	BusBW    float64 // GB/s
	Wrong    int64   // elements over all ranks and checks; -1 when nothing was checked
	Elements int64   // checked
}

// Measure times one size, then runs it checks times more with fresh inputs and counts wrong elements.
func (b *Bench) Measure(ctx context.Context, sizeBytes int64, inPlace bool, t Timing, checks int) (Result, error) {
	if inPlace && !b.Op.InPlace || !inPlace && !b.Op.OutOfPlace {
		return Result{}, fmt.Errorf("%s has no such form (in place: %v)", b.Op.Name, inPlace)
	}
	if _, err := b.Reserve(sizeBytes); err != nil {
		return Result{}, err
	}
	shape := b.ShapeOf(sizeBytes)
	res := Result{Size: int64(shape.Size() * b.Type.Size()), Count: shape.Count, InPlace: inPlace, Wrong: -1}
	calls := make([]*call, b.ranks)
	for r, c := range b.World.Local() {
		calls[r] = b.arrange(c, shape, inPlace)
	}
	warm, err := b.pattern(shape, b.Seed)
	if err != nil {
		return res, err
	}
	runtime.GC() // so that collecting what the last cell left does not run beside this one
	watch := newStopwatch(b.ranks, t)
	err = b.World.Run(ctx, func(ctx context.Context, c *comm.Comm) error {
		x := calls[c.Rank()]
		if err := x.load(warm); err != nil {
			return err
		}
		return watch.time(ctx, c, b.devices[c.Rank()], func() error { return b.Op.run(c, x) })
	})
	if err != nil {
		return res, fmt.Errorf("%s of %d bytes: %w", b.Op.Name, sizeBytes, err)
	}
	res.Times = watch.times()
	res.TimeUs = res.Times.Reduce(t.Average)
	if res.TimeUs > 0 {
		res.AlgBW = float64(shape.Algorithm*b.Type.Size()) / res.TimeUs / 1e3
		res.BusBW = res.AlgBW * b.Op.Factor(b.ranks)
	}
	if checks > 0 && b.Op.Name != "barrier" {
		res.Wrong, err = b.check(ctx, calls, checks)
	}
	return res, err
}

// pattern makes the inputs of one shape.
func (b *Bench) pattern(shape Shape, seed uint64) (*Pattern, error) {
	return NewPattern(b.Type, shape.Size(), b.ranks, b.Op.Reduces, b.Redop, seed)
}

// check runs the operation on fresh inputs and compares.
func (b *Bench) check(ctx context.Context, calls []*call, checks int) (int64, error) {
	var wrong atomic.Int64
	for i := range checks {
		p, err := b.pattern(calls[0].shape, b.Seed+uint64(i)+1)
		if err != nil {
			return 0, err
		}
		err = b.World.Run(ctx, func(ctx context.Context, c *comm.Comm) error {
			x := calls[c.Rank()]
			if err := x.load(p); err != nil {
				return err
			}
			if err := b.Op.run(c, x); err != nil {
				return err
			}
			if err := c.Wait(ctx, x.stream); err != nil {
				return err
			}
			n, err := x.wrong(b.Op, p)
			wrong.Add(n)
			return err
		})
		if err != nil {
			return 0, fmt.Errorf("%s: check: %w", b.Op.Name, err)
		}
	}
	return wrong.Load(), nil
}
