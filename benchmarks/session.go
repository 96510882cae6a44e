package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/weftgo/weft"
	"github.com/weftgo/weft/benchmarks/record"
	"github.com/weftgo/weft/benchmarks/suite"
	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/dtype"
)

// session is one run of the command.
type session struct {
	*flags
	header  record.Header
	world   *comm.World
	types   []dtype.DType
	redops  []comm.ReduceOp
	roots   []int
	ops     []*suite.Operation
	moe     []string
	minBW   float64 // NCCL_TESTS_MIN_BW; 0 means none
	results *record.Writer
	screen  *screen
	failed  bool
	memory  int64 // bytes where buffers live; 0 means unknown

	introduced bool // the preamble was printed
}

// newSession checks everything that can be checked before anything is measured.
func newSession(f *flags, args []string, out, errOut io.Writer) (s *session, err error) {
	s = &session{flags: f}
	if s.types, err = f.types(); err != nil {
		return nil, err
	}
	if s.redops, err = f.redops(); err != nil {
		return nil, err
	}
	if s.ops, s.moe, err = f.ops(); err != nil {
		return nil, err
	}
	if bound := os.Getenv("NCCL_TESTS_MIN_BW"); bound != "" {
		if s.minBW, err = strconv.ParseFloat(bound, 64); err != nil {
			return nil, fmt.Errorf("NCCL_TESTS_MIN_BW=%q is not a number of GB/s", bound)
		}
	}
	if s.world, err = f.open(); err != nil {
		return nil, err
	}
	f.Ranks = s.world.Size()
	f.Driver = cmp.Or(f.Driver, map[bool]string{false: "local", true: "p2p"}[f.onGPU()])
	s.header = record.Header{Tool: "benchmarks", Weft: record.Version(), Args: args, Machine: record.ThisMachine(), Seed: f.Seed,
		Time: time.Now().UTC().Truncate(time.Second)}
	if err := s.prepare(); err != nil {
		return nil, errors.Join(err, s.world.Close(context.Background()))
	}
	s.screen = newScreen(out, errOut)
	return s, nil
}

// prepare checks what needs the world, and makes the results file.
func (s *session) prepare() (err error) {
	if s.roots, err = s.flags.roots(); err != nil {
		return err
	}
	if s.memory, err = s.header.Machine.SeeGPUs(s.world); err != nil {
		return err
	}
	if err := s.fits(); err != nil {
		return err
	}
	s.results, err = record.Create(s.Output, s.header)
	return err
}

// open opens the world that --driver, --devices and --ranks ask for.
func (f *flags) open() (*comm.World, error) {
	return weft.Open(context.Background(), weft.Config{Ranks: f.Ranks, Devices: f.Devices, Driver: f.Driver,
		Timeout: time.Duration(f.Timeout) * time.Second})
}

// fits refuses a sweep whose buffers would not fit the memory, with the numbers.
func (s *session) fits() error {
	memory := float64(s.memory)
	sizes := s.sizes()
	if memory == 0 || len(sizes) == 0 {
		return nil
	}
	for _, op := range s.ops {
		for _, t := range s.types {
			shape := op.Shape(int(sizes[len(sizes)-1])/t.Size(), s.Ranks, t.Size(), s.load())
			var need float64
			for r := range shape.Send {
				need += float64((shape.Send[r] + shape.Recv[r]) * t.Size())
			}
			if need > 0.8*memory {
				return fmt.Errorf("%s of %d bytes on %d ranks needs %.1f GiB of buffers, there are %.1f: use a smaller -e or --ranks",
					op.Name, sizes[len(sizes)-1], s.Ranks, need/(1<<30), memory/(1<<30))
			}
		}
	}
	return nil
}

// sweep runs everything, cycle after cycle.
func (s *session) sweep(ctx context.Context) error {
	for cycle := 0; s.Cycles == 0 || cycle < s.Cycles; cycle++ {
		for _, op := range s.ops {
			if err := s.collective(ctx, op, cycle); err != nil {
				return err
			}
		}
		if len(s.moe) > 0 {
			if err := s.exchange(ctx, cycle); err != nil {
				return err
			}
		}
	}
	if s.failed {
		return errFailed
	}
	return nil
}

// close ends the session, whatever happened in it.
func (s *session) close() error {
	s.screen.close()
	return errors.Join(s.results.Close(), s.world.Close(context.Background()))
}

// collective runs one table: all sizes, types, reductions and roots of one operation.
func (s *session) collective(ctx context.Context, op *suite.Operation, cycle int) error {
	table := s.newTable(op)
	table.start()
	setups := s.setups(op)
	sizes := s.sizes()
	if op.Name == "barrier" {
		sizes = []int64{0}
	}
	done := s.screen.begin(op.Name, len(setups)*len(sizes))
	defer done()
	for _, setup := range setups {
		b, err := suite.New(s.world, setup)
		if err != nil {
			if table.comment(err.Error()); len(s.ops)+len(s.moe) > 1 || len(setups) > 1 {
				continue // one of many that does not apply here
			}
			return err
		}
		if err := errors.Join(s.rows(ctx, table, b, sizes, cycle), b.Close()); err != nil {
			return err
		}
	}
	s.failed = !table.finish(s.minBW) || s.failed
	return nil
}

// rows measures all sizes of one setup.
func (s *session) rows(ctx context.Context, table *table, b *suite.Bench, sizes []int64, cycle int) error {
	held, err := b.Reserve(sizes[len(sizes)-1])
	if err != nil {
		return err
	}
	if s.Memory == 1 {
		table.comment(fmt.Sprintf("buffers: %.1f MiB over %d ranks", float64(held)/(1<<20), s.Ranks))
	}
	for _, size := range sizes {
		if err := s.row(ctx, table, b, size, cycle); err != nil {
			return err
		}
		s.screen.step()
	}
	return nil
}

// setups lists the combinations of -d, -o and -r that matter to an operation.
func (s *session) setups(op *suite.Operation) []suite.Setup {
	redops, roots, types, load := s.redops, s.roots, s.types, s.load()
	if !op.Reduces {
		redops = redops[:1]
	}
	if !op.Rooted {
		roots = roots[:1]
	}
	if op.Name == "barrier" {
		types = types[:1]
	}
	if !op.Ragged {
		load = suite.Load{}
	}
	var out []suite.Setup
	for _, t := range types {
		for _, r := range redops {
			for _, root := range roots {
				out = append(out, suite.Setup{Op: op, Type: t, Redop: r, Root: root, Load: load, Unalign: s.Unalign, Seed: s.Seed})
			}
		}
	}
	return out
}

// row measures one size out of place and in place, where the operation has both.
func (s *session) row(ctx context.Context, table *table, b *suite.Bench, size int64, cycle int) error {
	var cells [2]*suite.Result
	for i, has := range []bool{b.Op.OutOfPlace, b.Op.InPlace} {
		if !has {
			continue
		}
		res, err := b.Measure(ctx, size, i == 1, s.timing(), s.Check)
		if err != nil {
			return err
		}
		cells[i] = &res
		if err := s.results.Write(s.record(b, res, cycle)); err != nil {
			return err
		}
	}
	table.row(b.Setup, cells)
	return nil
}

// record turns a cell into a line of the results file.
func (s *session) record(b *suite.Bench, res suite.Result, cycle int) record.Row {
	r := record.Row{Op: b.Op.Name, Size: res.Size, Count: res.Count, Type: b.Type.String(), Driver: s.Driver, Ranks: s.Ranks,
		InPlace: res.InPlace, TimeUs: res.TimeUs, AlgBW: res.AlgBW, BusBW: res.BusBW, Iters: res.Times.N, Cycle: cycle,
		Skew: b.Load.Skew, Zeros: b.Load.Zeros}
	if b.Op.Reduces {
		r.Redop = b.Redop.String()
	}
	if b.Op.Rooted {
		r.Root = &b.Root
	}
	if res.Wrong >= 0 {
		r.Wrong = &res.Wrong
	}
	if len(res.Times.Iters) > 0 {
		spread := res.Times.Spread(s.PerIterSkip)
		r.PerIter = &record.PerIter{Min: spread.Min, Max: spread.Max, P50: spread.P50, P99: spread.P99, CV: spread.CV}
	}
	return r
}
