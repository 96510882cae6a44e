package p2p

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/cuda"
	"github.com/weftgo/weft/dtype"
	"github.com/weftgo/weft/internal/kernels"
	"github.com/weftgo/weft/internal/turnstile"
)

// Tune measures the forms and blocks of w's collectives by size, uses what won from then on, and stores it for later worlds
// of the same kind: GPU, driver, ranks on each GPU, version of the kernels. Open does it by itself when WEFT_TUNE=run and
// nothing is stored. No rank may be at work. It takes about a second. Worlds of several processes keep the default:
// Unavailable.
func Tune(ctx context.Context, w *comm.World) error {
	local := w.Local()
	if len(local) == 0 {
		return nil
	}
	in, ok := local[0].Conn().(*conn)
	if !ok || len(local) != w.Size() {
		return comm.Errorf("tune", local[0].WorldRank(), comm.Unavailable, "only worlds of package p2p in one process can be tuned")
	}
	return in.g.w.measure(ctx, w)
}

// useTable makes the stored table w's, or measures one, as WEFT_TUNE says.
func (w *world) useTable(ctx context.Context, all *comm.World) error {
	how, err := tuneKnob.Get()
	if err != nil {
		return &comm.Error{Op: "open p2p", Rank: w.cfg.FirstRank, Peer: comm.NoPeer, Code: comm.Invalid, Err: err}
	}
	if how == "off" || len(all.Local()) != all.Size() || all.Size() == 1 {
		return nil
	}
	t, err := w.newTable()
	if err != nil {
		return err
	}
	switch {
	case t.load():
		w.table = t
	case how == "run":
		return w.measure(ctx, all)
	}
	return nil
}

// Sizes that are measured, in bytes of the operation's largest buffer, and the least calls in a row.
const (
	tuneFirst = 1 << 10
	tuneLast  = 4 << 20
	tuneStep  = 4
	tuneCalls = 16
	tuneReps  = 5
)

// candidates are the launches that are tried for one size.
func candidates(k comm.OpKind, bytes int64, blocks int) (list []choice) {
	for n := 1; ; n = min(4*n, blocks) {
		list = append(list, choice{MaxBytes: bytes, Blocks: n})
		if k == comm.AllReduce && bytes <= kernels.SmallBytes {
			list = append(list, choice{MaxBytes: bytes, Blocks: n, Push: true})
		}
		if n == blocks {
			return list
		}
	}
}

// measure fills w.table.
func (w *world) measure(ctx context.Context, all *comm.World) error {
	best, err := w.newTable()
	if err != nil {
		return err
	}
	blocks := 1 << 10
	for _, g := range w.gpus {
		blocks = min(blocks, g.blocks)
	}
	old, trial := w.table, &tuning{Choices: map[comm.OpKind][]choice{}}
	m := &meter{trial: trial, best: best, blocks: blocks, turn: turnstile.New(all.Size())}
	w.table = trial
	err = all.Run(ctx, m.rank)
	if w.table = old; err != nil {
		return err
	}
	w.table = best
	if err := best.store(); err != nil {
		return &comm.Error{Op: "tune", Rank: w.cfg.FirstRank, Peer: comm.NoPeer, Code: comm.Internal, Err: fmt.Errorf("the choices are in use but could not be stored: %w", err)}
	}
	return nil
}

// meter is one measurement by all ranks.
type meter struct {
	trial, best *tuning
	blocks      int
	turn        *turnstile.Turnstile

	mu    sync.Mutex
	worst float64 // the slowest rank's time of the trial
}

// rank measures every candidate of every size in step with the other ranks; rank 0 keeps the books.
func (m *meter) rank(ctx context.Context, c *comm.Comm) (err error) {
	b := &bench{c: c, in: c.Conn().(*conn)}
	defer func() { err = errors.Join(err, b.close()) }()
	if err := b.open(); err != nil {
		return err
	}
	for _, k := range tunedKinds {
		for bytes := int64(tuneFirst); bytes <= tuneLast; bytes *= tuneStep {
			for _, try := range candidates(k, bytes, m.blocks) {
				if c.Rank() == 0 {
					m.begin(k, try)
				}
				if err := m.turn.Wait(ctx); err != nil {
					return err
				}
				us, err := b.time(ctx, k, int(bytes), m.turn)
				if err != nil {
					return err
				}
				m.took(us)
				if err := m.turn.Wait(ctx); err != nil {
					return err
				}
				if c.Rank() == 0 { // the others may be slow to leave the turn, and rank 0 goes on
					try.TimeUs = m.slowest()
					m.keep(k, try)
				}
			}
		}
	}
	return nil
}

// begin makes try the launch that all ranks use; rank 0 calls it before the others may start.
func (m *meter) begin(k comm.OpKind, try choice) {
	m.trial.Choices[k] = []choice{try}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.worst = 0
}

// took notes a rank's time of the trial.
func (m *meter) took(us float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.worst = max(m.worst, us)
}

// slowest returns the trial's time, once all ranks have noted theirs.
func (m *meter) slowest() float64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.worst
}

// keep notes a trial when it is the best of its size.
func (m *meter) keep(k comm.OpKind, try choice) {
	rows := m.best.Choices[k]
	if n := len(rows); n > 0 && rows[n-1].MaxBytes == try.MaxBytes {
		if try.TimeUs < rows[n-1].TimeUs {
			rows[n-1] = try
		}
		return
	}
	m.best.Choices[k] = append(rows, try)
}

// bench is one rank's memory and events.
type bench struct {
	c           *comm.Comm
	in          *conn
	src, dst    comm.Buffer
	word        uintptr
	rep         uint32
	first, last *cuda.Event
}

func (b *bench) open() (err error) {
	if b.src, err = comm.Alloc(b.c, dtype.BF16, 1, tuneLast/2); err != nil {
		return err
	}
	if b.dst, err = comm.Alloc(b.c, dtype.BF16, 1, tuneLast/2); err != nil {
		return err
	}
	if b.word, err = b.in.r.zeroed(4); err != nil {
		return err
	}
	if b.first, err = b.in.r.gpu.dev.NewEvent(true); err != nil {
		return err
	}
	b.last, err = b.in.r.gpu.dev.NewEvent(true)
	return err
}

func (b *bench) close() error {
	var errs []error
	if b.word != 0 { // a stream that still waits goes on; its kernels leave a dead world
		errs = append(errs, b.in.r.gpu.aside(func(s *cuda.Stream) error { return s.WriteValue(b.word, b.rep) }), b.in.r.streams.Own.Wait(context.Background()),
			b.in.r.arena.free(b.word))
	}
	errs = append(errs, comm.Free(b.c, b.src), comm.Free(b.c, b.dst))
	for _, e := range []*cuda.Event{b.first, b.last} {
		if e != nil {
			errs = append(errs, e.Close())
		}
	}
	return errors.Join(errs...)
}

// call enqueues one operation whose largest buffer has bytes.
func (b *bench) call(k comm.OpKind, bytes int) error {
	n, size := bytes/2, b.c.Size()
	part := max(1, n/size)
	switch k {
	case comm.AllGather:
		return b.c.AllGather(comm.Stream{}, b.shape(b.dst, size, part), b.shape(b.src, 1, part))
	case comm.ReduceScatter:
		return b.c.ReduceScatter(comm.Stream{}, b.shape(b.dst, 1, part), b.shape(b.src, size, part), comm.Sum)
	case comm.AllToAllV:
		ones := make([]int, size)
		for i := range ones {
			ones[i] = 1
		}
		return b.c.AllToAllV(comm.Stream{}, comm.Host(ones), comm.Host(ones), comm.Part{Dst: b.shape(b.dst, size, part), Src: b.shape(b.src, size, part)})
	default:
		return b.c.AllReduce(comm.Stream{}, b.dst.Columns(0, n), b.src.Columns(0, n), comm.Sum)
	}
}

func (b *bench) shape(x comm.Buffer, rows, cols int) comm.Buffer {
	return comm.At(x.Device(), x.Addr(), x.DType(), rows, cols, cols)
}

// time returns the median device time of a call, in microseconds. All ranks enqueue first; then all streams are released.
func (b *bench) time(ctx context.Context, k comm.OpKind, bytes int, all *turnstile.Turnstile) (float64, error) {
	var us []float64
	st := b.in.r.streams.Own
	for range tuneReps {
		b.rep++
		if err := errors.Join(b.in.r.streams.Order(st), st.WaitValue(b.word, b.rep), b.c.Barrier(comm.Stream{}), b.first.Record(st)); err != nil {
			return 0, err
		}
		for range tuneCalls {
			if err := b.call(k, bytes); err != nil {
				return 0, err
			}
		}
		if err := errors.Join(b.last.Record(st), all.Wait(ctx)); err != nil {
			return 0, err
		}
		if err := b.in.r.gpu.aside(func(s *cuda.Stream) error { return s.WriteValue(b.word, b.rep) }); err != nil {
			return 0, err
		}
		if err := b.c.Wait(ctx, comm.Stream{}); err != nil {
			return 0, err
		}
		d, err := b.last.Since(b.first)
		if err != nil {
			return 0, err
		}
		us = append(us, float64(d)/1e3/tuneCalls)
	}
	slices.Sort(us)
	return us[len(us)/2], nil
}
